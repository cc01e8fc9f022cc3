-- What psycopg 3.3 and psycopg2 2.9 asked of PostgreSQL 15, as it logged it; :visits and :clinics are numbers of tables.

-- differs
select version()

-- parameters ["hstore"]
SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter FROM pg_type t WHERE t.oid = to_regtype($1) ORDER BY t.oid

-- parameters ["hstore"]
SELECT name, oid, array_oid, regtype, array_agg(label) AS labels FROM ( SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid, t.oid::regtype::text AS
regtype, e.enumlabel AS label FROM pg_type t LEFT JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.oid = to_regtype($1) ORDER BY e.enumsortorder ) x GROUP BY name,
oid, array_oid, regtype

-- parameters ["hstore"]
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid, t.oid::regtype::text AS regtype, coalesce(a.fnames, '{}') AS field_names, coalesce(a.ftypes, '{}') AS field_types FROM pg_type t LEFT JOIN ( SELECT attrelid, array_agg(attname) AS fnames, array_agg(atttypid) AS ftypes FROM ( SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a JOIN pg_type t ON t.typrelid = a.attrelid WHERE t.oid = to_regtype($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum ) x GROUP BY attrelid ) a ON a.attrelid = t.typrelid WHERE t.oid = to_regtype($1)

-- parameters ["hstore"]
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid, t.oid::regtype::text AS regtype, r.rngsubtype AS subtype_oid FROM pg_type t JOIN pg_range r ON
t.oid = r.rngtypid WHERE t.oid = to_regtype($1)

show server_version

-- differs
-- parameters ["server_version"]
select current_setting($1)

select current_database(), current_user, session_user

SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'

SELECT t.oid, typarray, attname, atttypid FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid JOIN pg_attribute a ON attrelid = typrelid WHERE typname = 'visits' AND nspname = 'public' AND attnum > 0 AND NOT attisdropped ORDER BY attnum
