-- The SHA-256 of the SQL below migrations/ that this database has, written with every migration.
CREATE TABLE schema_code (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    digest bytea NOT NULL
);
INSERT INTO schema_code (digest) VALUES ('');
