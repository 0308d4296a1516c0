-- Tenants that have limits get the new ones with their defaults. A tenant without any has been left without on purpose.
-- The owner of the table sees all rows only while row-level security is not forced.
ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY;
UPDATE tenants SET limits = '{"openStreams": 200, "openStreamsPerKey": 200}'::jsonb || limits WHERE limits <> '{}';
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
