-- What pgAdmin, pgcli, pgx, node-postgres, Power BI, Tableau, dbt and DuckDB ask, in our words.

SELECT CASE WHEN (SELECT count(extname) FROM pg_catalog.pg_extension WHERE extname = 'bdr') > 0 THEN 'pgd' WHEN (SELECT COUNT(*) FROM pg_replication_slots) > 0 THEN 'log' ELSE NULL END AS type

-- differs
SELECT db.oid AS did, db.datname, db.datallowconn, pg_encoding_to_char(db.encoding) AS serverencoding, has_database_privilege(db.oid, 'CREATE') AS cancreate, datistemplate FROM pg_catalog.pg_database db WHERE db.datname = current_database()

-- differs
SELECT roles.oid AS id, roles.rolname AS name, roles.rolsuper AS is_superuser, CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreaterole END AS can_create_role FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user

-- differs
SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()

-- differs
SELECT nsp.oid, nsp.nspname AS name, has_schema_privilege(nsp.oid, 'CREATE') AS can_create, has_schema_privilege(nsp.oid, 'USAGE') AS has_usage, des.description FROM pg_catalog.pg_namespace nsp LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = nsp.oid AND des.classoid = 'pg_namespace'::regclass) WHERE nspname NOT LIKE E'pg\\_%' AND NOT ((nsp.nspname = 'pg_catalog' AND EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'pg_class' AND relnamespace = nsp.oid LIMIT 1))) ORDER BY nspname

-- differs
SELECT rel.oid, rel.relname AS name, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = FALSE) AS triggercount, rel.relpages || '/' || rel.reltuples AS size, des.description FROM pg_catalog.pg_class rel LEFT JOIN pg_catalog.pg_description des ON (des.objoid = rel.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass) WHERE rel.relkind IN ('r', 's', 't', 'p') AND rel.relnamespace = 2200::oid AND NOT rel.relispartition ORDER BY rel.relname

SELECT n.nspname schema_name, c.relname table_name FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = ANY('{r,p,f}') ORDER BY 1, 2

SELECT * FROM unnest(current_schemas(true))

SELECT nsp.nspname schema_name, cls.relname table_name, att.attname column_name, att.atttypid::regtype::text type_name, att.atthasdef AS has_default, pg_catalog.pg_get_expr(def.adbin, def.adrelid, true) AS default FROM pg_catalog.pg_attribute att INNER JOIN pg_catalog.pg_class cls ON att.attrelid = cls.oid INNER JOIN pg_catalog.pg_namespace nsp ON cls.relnamespace = nsp.oid LEFT OUTER JOIN pg_attrdef def ON def.adrelid = att.attrelid AND def.adnum = att.attnum WHERE cls.relkind = ANY('{r}') AND NOT att.attisdropped AND att.attnum > 0 AND nsp.nspname = 'public' ORDER BY 1, 2, att.attnum

-- parameters ["int4"]
SELECT t.oid, t.typname, t.typtype, t.typbasetype, t.typelem FROM pg_type t LEFT JOIN pg_namespace nsp ON t.typnamespace = nsp.oid WHERE t.typname = $1

-- parameters ["hstore"]
SELECT $1::text::regtype::oid

SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.tables WHERE TABLE_SCHEMA NOT IN ('information_schema', 'pg_catalog') ORDER BY TABLE_SCHEMA, TABLE_NAME

SELECT COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, CASE WHEN (data_type LIKE '%unsigned%') THEN DATA_TYPE || ' unsigned' ELSE DATA_TYPE END AS DATA_TYPE FROM INFORMATION_SCHEMA.columns WHERE TABLE_SCHEMA = 'public' AND TABLE_NAME = 'visits' ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION

SELECT pkcol.COLUMN_NAME AS PK_COLUMN_NAME, fkcol.TABLE_SCHEMA AS FK_TABLE_SCHEMA, fkcol.TABLE_NAME AS FK_TABLE_NAME, fkcol.COLUMN_NAME AS FK_COLUMN_NAME, fkcol.ORDINAL_POSITION AS ORDINAL, fkcon.CONSTRAINT_SCHEMA || '_' || fkcol.TABLE_NAME || '_' || 'visits' || '_' || fkcon.CONSTRAINT_NAME AS FK_NAME FROM (SELECT DISTINCT constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name, unique_constraint_name FROM INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS) fkcon INNER JOIN INFORMATION_SCHEMA.KEY_COLUMN_USAGE fkcol ON fkcon.CONSTRAINT_SCHEMA = fkcol.CONSTRAINT_SCHEMA AND fkcon.CONSTRAINT_NAME = fkcol.CONSTRAINT_NAME INNER JOIN INFORMATION_SCHEMA.KEY_COLUMN_USAGE pkcol ON fkcon.UNIQUE_CONSTRAINT_SCHEMA = pkcol.CONSTRAINT_SCHEMA AND fkcon.UNIQUE_CONSTRAINT_NAME = pkcol.CONSTRAINT_NAME WHERE pkcol.TABLE_SCHEMA = 'public' AND pkcol.TABLE_NAME = 'visits' AND pkcol.ORDINAL_POSITION = fkcol.ORDINAL_POSITION ORDER BY FK_NAME, fkcol.ORDINAL_POSITION

select 'demo' as database, sch.nspname as schema, tbl.relname as name, case when tbl.relkind = 'r' then 'table' when tbl.relkind = 'v' then 'view' end as type from pg_namespace sch join pg_class tbl on tbl.relnamespace = sch.oid where sch.nspname ilike 'public' and tbl.relkind in ('r', 'v') union all select table_catalog, table_schema, table_name, 'view' from information_schema.views where table_schema = 'public' order by 3

SELECT CAST('test plain returns' AS VARCHAR(60)) AS anon_1

SELECT 1 AS one, 'x' AS text, NULL AS nothing, 1.5 AS number, true AS yes, current_date IS NOT NULL AS day, now() IS NOT NULL AS at

SELECT NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'nope') AS missing

-- differs
SELECT set_config('bytea_output', 'hex', false) FROM pg_show_all_settings() WHERE name = 'bytea_output'

-- differs
SELECT roles.oid AS id, CASE WHEN 'pg_signal_backend' = ANY(ARRAY(WITH RECURSIVE cte AS (SELECT pg_roles.oid, pg_roles.rolname FROM pg_roles WHERE pg_roles.oid = roles.oid UNION ALL SELECT m.roleid, pgr.rolname FROM cte cte_1 JOIN pg_auth_members m ON m.member = cte_1.oid JOIN pg_roles pgr ON pgr.oid = m.roleid) SELECT rolname FROM cte)) THEN True ELSE False END AS can_signal_backend FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user

-- differs
SELECT ns.oid AS namespace_id, relname, relpages, attname, ty.typname AS type_name, atttypmod AS type_modifier, att.attndims AS ndim, attnum, att.attnotnull AS notnull, NULL AS constraint_id, NULL AS constraint_type, NULL AS constraint_key, tns.nspname AS type_schema, d.description AS column_comment FROM pg_class JOIN pg_namespace ns ON relnamespace = ns.oid JOIN pg_attribute att ON pg_class.oid = att.attrelid JOIN pg_type ty ON atttypid = ty.oid JOIN pg_namespace tns ON ty.typnamespace = tns.oid LEFT JOIN pg_description d ON d.objoid = pg_class.oid AND d.objsubid = att.attnum WHERE attnum > 0 AND relkind IN ('r', 'v', 'm', 'f', 'p') AND ns.nspname = 'public' UNION ALL SELECT ns.oid AS namespace_id, relname, NULL, NULL, NULL, NULL, NULL, NULL, NULL, con.oid, contype, conkey, NULL, NULL FROM pg_class JOIN pg_namespace ns ON relnamespace = ns.oid JOIN pg_constraint con ON pg_class.oid = con.conrelid WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND contype IN ('p', 'u') AND ns.nspname = 'public' ORDER BY namespace_id, relname, attnum, constraint_id
