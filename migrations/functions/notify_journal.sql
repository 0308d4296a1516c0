-- Notify every process that these queries have new events, once a transaction. `*` stands for all queries: the list
-- was too long for a notification.
CREATE OR REPLACE FUNCTION notify_journal(p_origin text, p_queries text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE names text := array_to_string(p_queries, ',');
BEGIN
    PERFORM pg_notify('plangate_journal', p_origin || '|' || CASE WHEN length(names) > 7000 THEN '*' ELSE names END);
END $$;
