-- Notify every process that these queries have new events, once a transaction: `origin|tenant/id,tenant/id`. `*` stands for
-- all queries, where the list would be too long for a notification.
CREATE OR REPLACE FUNCTION notify_journal(p_origin text, p_tenants text[], p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE names text := (SELECT string_agg(tenant || '/' || id, ',') FROM unnest(p_tenants, p_ids) AS q(tenant, id));
BEGIN
    PERFORM pg_notify('plangate_journal', p_origin || '|' || CASE WHEN length(names) > 7000 THEN '*' ELSE names END);
END $$;
