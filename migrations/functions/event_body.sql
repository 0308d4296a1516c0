-- Return the envelope of an event that the database writes itself, without its seq: readers put that in front.
CREATE OR REPLACE FUNCTION event_body(p_type text, p_query text, p_thread text, p_agent text, p_extra json) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(format(
        '{"type":%s,"queryId":%s,"threadId":%s,"workId":%s,"parentWorkId":null,"agent":%s,"at":"%s",%s',
        to_json(p_type), to_json(p_query), to_json(p_thread), to_json('wrk_' || substr(p_query, 5)), to_json(p_agent),
        to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        substr(p_extra::text, 2)), 'UTF8')
$$;
