-- What PostgreSQL 15's system tables say about a project: run once, on a database that holds nothing else.
-- The tables stand in `sys` (pg_catalog) and `inf` (information_schema), made and still empty. The temporary
-- tables `relations`, `fields`, `types`, `functions` and `ranges` hold what is known.

-- Who asks, and about which database, is a variable of each connection.
SET VARIABLE session = {'user': '', 'database': '', 'names': [''], 'settings': [''], 'version': ''};
CREATE MACRO sys.me() AS getvariable('session').user::VARCHAR;
CREATE MACRO sys.db() AS getvariable('session').database::VARCHAR;

INSERT INTO sys.pg_namespace BY NAME
  SELECT * FROM (VALUES (11, 'pg_catalog', 10), (99, 'pg_toast', 10), (2200, 'public', 6171), (13207, 'information_schema', 10))
  AS t(oid, nspname, nspowner);
INSERT INTO sys.pg_am BY NAME
  SELECT * FROM (VALUES (2, 'heap', 't'), (403, 'btree', 'i'), (405, 'hash', 'i'), (783, 'gist', 'i'),
  (2742, 'gin', 'i'), (4000, 'spgist', 'i'), (3580, 'brin', 'i')) AS t(oid, amname, amtype);
INSERT INTO sys.pg_collation BY NAME
  SELECT *, 11 AS collnamespace, 10 AS collowner, true AS collisdeterministic, -1 AS collencoding
  FROM (VALUES (100, 'default', 'd', NULL), (950, 'C', 'c', 'C'), (951, 'POSIX', 'c', 'POSIX'))
  AS t(oid, collname, collprovider, collcollate);
INSERT INTO sys.pg_language BY NAME
  SELECT *, 10 AS lanowner FROM (VALUES (12, 'internal', false), (13, 'c', false), (14, 'sql', true))
  AS t(oid, lanname, lanpltrusted);
INSERT INTO sys.pg_tablespace BY NAME
  SELECT *, 10 AS spcowner FROM (VALUES (1663, 'pg_default'), (1664, 'pg_global')) AS t(oid, spcname);
INSERT INTO sys.pg_proc BY NAME
  SELECT oid, name AS proname, 11 AS pronamespace, 10 AS proowner, 12 AS prolang, 'f' AS prokind FROM functions;
INSERT INTO sys.pg_range BY NAME SELECT * FROM ranges;
INSERT INTO sys.pg_type BY NAME
  SELECT t.* EXCLUDE (format, typsubscript, typinput, typoutput, typreceive, typsend, typmodin, typmodout, typanalyze),
    10 AS typowner, true AS typisdefined, -1 AS typtypmod, a.oid AS typsubscript, i.oid AS typinput,
    o.oid AS typoutput, r.oid AS typreceive, s.oid AS typsend, mi.oid AS typmodin, mo.oid AS typmodout,
    an.oid AS typanalyze
  FROM types t JOIN functions a ON a.name = typsubscript JOIN functions i ON i.name = typinput
  JOIN functions o ON o.name = typoutput JOIN functions r ON r.name = typreceive
  JOIN functions s ON s.name = typsend JOIN functions mi ON mi.name = typmodin
  JOIN functions mo ON mo.name = typmodout JOIN functions an ON an.name = typanalyze;
DELETE FROM sys.pg_proc WHERE oid = 0;
INSERT INTO sys.pg_class BY NAME
  SELECT oid, name AS relname, namespace AS relnamespace, rowtype AS reltype, 10 AS relowner,
    if(kind = 'r', 2, 0) AS relam, oid AS relfilenode, -1 AS reltuples, 'p' AS relpersistence, kind AS relkind,
    width AS relnatts, kind = 'v' AS relhasrules, true AS relispopulated,
    if(namespace = 2200, 'd', 'n') AS relreplident
  FROM relations;
INSERT INTO sys.pg_attribute BY NAME
  SELECT f.relation AS attrelid, f.name AS attname, t.oid AS atttypid, -1 AS attstattarget, t.typlen AS attlen,
    f.position AS attnum, if(t.typelem > 0 AND t.typcategory = 'A', 1, 0) AS attndims, -1 AS attcacheoff,
    -1 AS atttypmod, t.typbyval AS attbyval, t.typalign AS attalign, t.typstorage AS attstorage,
    f.filled AS attnotnull, true AS attislocal, if(f.relation < 16384 AND t.typcollation = 100, 950, t.typcollation) AS attcollation
  FROM fields f JOIN types t ON t.typname = f.type ORDER BY f.relation, f.position;
INSERT INTO sys.pg_description BY NAME
  SELECT oid AS objoid, 1259 AS classoid, 0 AS objsubid, remark AS description FROM relations WHERE remark <> ''
  UNION ALL SELECT relation, 1259, position, remark FROM fields WHERE remark <> '';
INSERT INTO sys.pg_tables BY NAME
  SELECT nspname AS schemaname, relname AS tablename, 'sfumato' AS tableowner, false AS hasindexes,
    false AS hasrules, false AS hastriggers, false AS rowsecurity
  FROM sys.pg_class c JOIN sys.pg_namespace n ON n.oid = c.relnamespace WHERE relkind = 'r';
INSERT INTO sys.pg_views BY NAME
  SELECT nspname AS schemaname, relname AS viewname, 'sfumato' AS viewowner
  FROM sys.pg_class c JOIN sys.pg_namespace n ON n.oid = c.relnamespace WHERE relkind = 'v';

-- Names of objects by number, as casts to regclass and its like write them; `form` is what they read.
CREATE TABLE sys.names AS
  SELECT 'regclass' AS kind, c.oid, nspname || '.' || relname AS form,
    if(nspname = 'information_schema', nspname || '.', '')
    || if(regexp_full_match(relname, '[a-z_][a-z0-9_$]*'), relname, '"' || replace(relname, '"', '""') || '"') AS name
  FROM sys.pg_class c JOIN sys.pg_namespace n ON n.oid = c.relnamespace
  UNION ALL SELECT 'regtype', oid, 'pg_catalog.' || typname, format FROM types
  UNION ALL SELECT 'regproc', oid, 'pg_catalog.' || name, name FROM functions
  UNION ALL SELECT 'regnamespace', oid, 'pg_catalog.' || nspname, nspname FROM sys.pg_namespace
  UNION ALL SELECT * FROM (VALUES ('regrole', 10, 'pg_catalog.sfumato', 'sfumato'));
INSERT INTO sys.names SELECT DISTINCT kind, 0, '-', '-' FROM sys.names;
INSERT INTO sys.names
  SELECT kind, oid, name, name FROM sys.names WHERE kind <> 'regclass'
  UNION ALL SELECT kind, oid, oid::VARCHAR, name FROM sys.names
  UNION ALL SELECT kind, oid, split_part(form, '.', 2), name FROM sys.names WHERE form NOT LIKE 'information_schema.%';

INSERT INTO inf.schemata BY NAME
  SELECT nspname AS schema_name, if(oid = 2200, 'pg_database_owner', 'sfumato') AS schema_owner FROM sys.pg_namespace;
INSERT INTO inf.tables BY NAME
  SELECT nspname AS table_schema, relname AS table_name, if(relkind = 'r', 'BASE TABLE', 'VIEW') AS table_type,
    'NO' AS is_insertable_into, 'NO' AS is_typed
  FROM sys.pg_class c JOIN sys.pg_namespace n ON n.oid = c.relnamespace;
INSERT INTO inf.views BY NAME
  SELECT table_schema, table_name, 'NONE' AS check_option, 'NO' AS is_updatable, 'NO' AS is_insertable_into
  FROM inf.tables WHERE table_type = 'VIEW';
INSERT INTO inf.table_privileges BY NAME
  SELECT 'sfumato' AS grantor, table_schema, table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable,
    'YES' AS with_hierarchy FROM inf.tables;
INSERT INTO inf.columns BY NAME
  SELECT nspname AS table_schema, relname AS table_name, attname AS column_name, attnum AS ordinal_position,
    if(attnotnull, 'NO', 'YES') AS is_nullable, if(typcategory = 'A', 'ARRAY', format) AS data_type,
    if(typname IN ('text', 'varchar'), 1073741824, NULL) AS character_octet_length,
    CASE typname WHEN 'int2' THEN 16 WHEN 'int4' THEN 32 WHEN 'int8' THEN 64 WHEN 'float4' THEN 24 WHEN 'float8' THEN 53 END
      AS numeric_precision,
    if(typcategory = 'N' AND typname[1:3] IN ('int', 'flo'), 2, NULL) AS numeric_precision_radix,
    if(typname[1:3] = 'int' AND typcategory = 'N', 0, NULL) AS numeric_scale,
    CASE WHEN typname = 'date' THEN 0 WHEN typcategory = 'D' THEN 6 END AS datetime_precision,
    'pg_catalog' AS udt_schema, typname AS udt_name, attnum::VARCHAR AS dtd_identifier,
    'NO' AS is_self_referencing, 'NO' AS is_identity, 'NO' AS identity_cycle, 'NEVER' AS is_generated, 'NO' AS is_updatable
  FROM sys.pg_attribute a JOIN sys.pg_class c ON c.oid = attrelid JOIN sys.pg_namespace n ON n.oid = relnamespace
  JOIN types t ON t.oid = atttypid ORDER BY attrelid, attnum;
INSERT INTO inf.character_sets BY NAME
  SELECT 'UTF8' AS character_set_name, 'UCS' AS character_repertoire, 'UTF8' AS form_of_use;
INSERT INTO sys.pg_database BY NAME
  SELECT 16384 AS oid, 10 AS datdba, 6 AS encoding, 'c' AS datlocprovider, false AS datistemplate,
    true AS datallowconn, -1 AS datconnlimit, 1663 AS dattablespace, 'C' AS datcollate, 'C' AS datctype;
INSERT INTO sys.pg_roles BY NAME
  SELECT *, true AS rolinherit, true AS rolcanlogin, -1 AS rolconnlimit, '********' AS rolpassword, false AS rolreplication,
    false AS rolbypassrls, rolsuper AS rolcreaterole, rolsuper AS rolcreatedb
  FROM (VALUES (10, 'sfumato', true), (16385, NULL, false)) AS t(oid, rolname, rolsuper);
INSERT INTO sys.pg_settings BY NAME SELECT 'string' AS vartype, 'client' AS source, 'user' AS context, false AS pending_restart;

-- What depends on who asks, over the rows above.
ALTER TABLE sys.pg_database RENAME TO made_database;
CREATE VIEW sys.pg_database AS SELECT * REPLACE (sys.db() AS datname) FROM sys.made_database;
ALTER TABLE sys.pg_roles RENAME TO made_roles;
CREATE VIEW sys.pg_roles AS SELECT * REPLACE (coalesce(rolname, sys.me()) AS rolname) FROM sys.made_roles
  WHERE rolname IS NULL OR rolname <> sys.me();
ALTER TABLE sys.pg_user RENAME TO made_user;
CREATE VIEW sys.pg_user AS SELECT rolname AS usename, oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper,
  false AS userepl, false AS usebypassrls, '********' AS passwd, NULL::TIMESTAMP AS valuntil, NULL::VARCHAR[] AS useconfig
  FROM sys.pg_roles;
ALTER TABLE sys.pg_settings RENAME TO made_settings;
CREATE VIEW sys.pg_settings AS
  SELECT m.* REPLACE (s.name AS name, s.setting AS setting, s.setting AS reset_val) FROM sys.made_settings m,
  (SELECT unnest(getvariable('session').names::VARCHAR[]) AS name, unnest(getvariable('session').settings::VARCHAR[]) AS setting) s;
ALTER TABLE inf.schemata RENAME TO made_schemata;
CREATE VIEW inf.schemata AS SELECT * REPLACE (sys.db() AS catalog_name) FROM inf.made_schemata;
ALTER TABLE inf.tables RENAME TO made_tables;
CREATE VIEW inf.tables AS SELECT * REPLACE (sys.db() AS table_catalog) FROM inf.made_tables;
ALTER TABLE inf.views RENAME TO made_views;
CREATE VIEW inf.views AS SELECT * REPLACE (sys.db() AS table_catalog) FROM inf.made_views;
ALTER TABLE inf.columns RENAME TO made_columns;
CREATE VIEW inf.columns AS SELECT * REPLACE (sys.db() AS table_catalog, sys.db() AS udt_catalog) FROM inf.made_columns;
ALTER TABLE inf.table_privileges RENAME TO made_privileges;
CREATE VIEW inf.table_privileges AS SELECT * REPLACE (sys.db() AS table_catalog, sys.me() AS grantee) FROM inf.made_privileges;
ALTER TABLE inf.role_table_grants RENAME TO made_grants;
CREATE VIEW inf.role_table_grants AS FROM inf.table_privileges;
ALTER TABLE inf.character_sets RENAME TO made_sets;
CREATE VIEW inf.character_sets AS SELECT * REPLACE (sys.db() AS default_collate_catalog) FROM inf.made_sets;
ALTER TABLE inf.information_schema_catalog_name RENAME TO made_name;
CREATE VIEW inf.information_schema_catalog_name AS SELECT sys.db() AS catalog_name;
ALTER TABLE inf.enabled_roles RENAME TO made_enabled;
CREATE VIEW inf.enabled_roles AS SELECT sys.me() AS role_name;

-- The functions that may be called: those below but the inner ones; the plain ones and those that make text,
-- which DuckDB has with the same meaning. What some of them give: a text that may be longer than its parts, several
-- rows, the type of their arguments, or the type that is named.
--: plain abs array_agg ascii avg bool_and bool_or ceil coalesce count date_part date_trunc dense_rank first_value floor
--: plain greatest json_build_object lag last_value lead least left length lower ltrim max md5 min mod nullif
--: plain position rank right round row_number rtrim split_part strpos substr substring sum trim trunc unnest upper
--: text concat concat_ws replace regexp_replace string_agg
--: long quote_ident quote_literal array_to_string format array_to_json
--: rows generate_series generate_subscripts _pg_expandarray
--: same min max coalesce nullif greatest least first_value last_value lag lead
--: inner me db named numbered may visible formed
--: name current_user session_user user current_role current_database current_catalog current_schema pg_get_userbyid
--: name pg_encoding_to_char getdatabaseencoding pg_client_encoding
--: timestamptz now pg_postmaster_start_time pg_conf_load_time
-- Each uses an argument once: DuckDB writes arguments out, and nested calls would grow by powers.
CREATE MACRO sys.named(k, x) AS (SELECT min(name) FROM sys.names WHERE kind = k AND oid = x);
CREATE MACRO sys.numbered(k, x) AS (SELECT min(oid) FROM sys.names WHERE kind = k AND form =
  list_transform([x], lambda v: if(contains(v, '"'), replace(v, '"', ''), lower(v)))[1]);
CREATE MACRO sys.to_regclass(x) AS sys.numbered('regclass', x);
CREATE MACRO sys.to_regtype(x) AS sys.numbered('regtype', x);
CREATE MACRO sys.to_regproc(x) AS sys.numbered('regproc', x);
CREATE MACRO sys.to_regnamespace(x) AS sys.numbered('regnamespace', x);
CREATE MACRO sys.to_regrole(x) AS sys.numbered('regrole', x);

CREATE MACRO sys.format_type(t, m) AS sys.named('regtype', t);
CREATE MACRO sys.obj_description(x, c) AS (SELECT min(description) FROM sys.pg_description WHERE objoid = x AND objsubid = 0 AND c = 'pg_class'),
  (x) AS (SELECT min(description) FROM sys.pg_description WHERE objoid = x AND objsubid = 0);
CREATE MACRO sys.col_description(x, n) AS (SELECT min(description) FROM sys.pg_description WHERE objoid = x AND objsubid = n AND n > 0);
CREATE MACRO sys.shobj_description(x, c) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_userbyid(x) AS
  coalesce(map {10: 'sfumato', 16385: sys.me(), 6171: 'pg_database_owner'}[x], 'unknown');

CREATE MACRO sys.version() AS getvariable('session').version::VARCHAR;
CREATE MACRO sys."current_user"() AS sys.me();
CREATE MACRO sys."session_user"() AS sys.me();
CREATE MACRO sys."user"() AS sys.me();
CREATE MACRO sys.current_role() AS sys.me();
CREATE MACRO sys.current_database() AS sys.db();
CREATE MACRO sys.current_catalog() AS sys.db();
CREATE MACRO sys.current_schema() AS 'public';
CREATE MACRO sys.current_schemas(x) AS if(x, ['pg_catalog', 'public'], ['public']);
CREATE MACRO sys.current_setting(n) AS (getvariable('session').settings)[nullif(list_position(getvariable('session').names, lower(n)), 0)],
  (n, m) AS (getvariable('session').settings)[nullif(list_position(getvariable('session').names, lower(n)), 0)];
CREATE MACRO sys.set_config(n, v, l) AS v::VARCHAR;
CREATE MACRO sys.now() AS make_timestamp(epoch_us(now()));
CREATE MACRO sys.pg_postmaster_start_time() AS NULL::TIMESTAMP;
CREATE MACRO sys.pg_conf_load_time() AS NULL::TIMESTAMP;
CREATE MACRO sys.pg_backend_pid() AS 0;
CREATE MACRO sys.inet_server_addr() AS NULL::VARCHAR;
CREATE MACRO sys.inet_server_port() AS NULL::INTEGER;
CREATE MACRO sys.inet_client_addr() AS NULL::VARCHAR;
CREATE MACRO sys.inet_client_port() AS NULL::INTEGER;
CREATE MACRO sys.pg_is_in_recovery() AS false;
CREATE MACRO sys.pg_my_temp_schema() AS 0::UINTEGER;
CREATE MACRO sys.pg_is_other_temp_schema(x) AS false;
CREATE MACRO sys.pg_advisory_unlock_all() AS '';
CREATE MACRO sys.pg_encoding_to_char(x) AS coalesce(map {6: 'UTF8', 0: 'SQL_ASCII'}[x], '');
CREATE MACRO sys.pg_char_to_encoding(x) AS coalesce(map {'UTF8': 6, 'SQL_ASCII': 0}[upper(x)], -1);
CREATE MACRO sys.getdatabaseencoding() AS 'UTF8';
CREATE MACRO sys.pg_client_encoding() AS 'UTF8';
CREATE MACRO sys.txid_current() AS 1::BIGINT;
CREATE MACRO sys.age(x) AS 0;

CREATE MACRO sys.visible(x) AS x NOT BETWEEN 13000 AND 16383;
CREATE MACRO sys.pg_table_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_type_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_function_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_operator_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_opclass_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_opfamily_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_collation_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_conversion_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_statistics_obj_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_ts_config_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_ts_dict_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_ts_parser_is_visible(x) AS sys.visible(x);
CREATE MACRO sys.pg_ts_template_is_visible(x) AS sys.visible(x);

CREATE MACRO sys.pg_get_expr(x, r) AS NULL::VARCHAR, (x, r, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_constraintdef(x) AS NULL::VARCHAR, (x, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_indexdef(x) AS NULL::VARCHAR, (x, n, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_viewdef(x) AS NULL::VARCHAR, (x, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_ruledef(x) AS NULL::VARCHAR, (x, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_triggerdef(x) AS NULL::VARCHAR, (x, p) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_functiondef(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_function_result(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_function_arguments(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_function_identity_arguments(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_function_arg_default(x, n) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_function_sqlbody(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_partkeydef(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_partition_constraintdef(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_serial_sequence(t, c) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_statisticsobjdef(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_get_statisticsobjdef_columns(x) AS NULL::VARCHAR;
CREATE MACRO sys.pg_describe_object(c, o, s) AS NULL::VARCHAR;
CREATE MACRO sys.pg_tablespace_location(x) AS '';
CREATE MACRO sys.pg_sequence_last_value(x) AS NULL::BIGINT;
CREATE MACRO sys.pg_relation_is_publishable(x) AS false;
CREATE MACRO sys.pg_relation_is_updatable(x, t) AS 0;
CREATE MACRO sys.pg_column_is_updatable(x, n, t) AS false;

CREATE MACRO sys.pg_table_size(x) AS 0::BIGINT;
CREATE MACRO sys.pg_relation_size(x) AS 0::BIGINT, (x, f) AS 0::BIGINT;
CREATE MACRO sys.pg_total_relation_size(x) AS 0::BIGINT;
CREATE MACRO sys.pg_indexes_size(x) AS 0::BIGINT;
CREATE MACRO sys.pg_database_size(x) AS 0::BIGINT;
CREATE MACRO sys.pg_tablespace_size(x) AS 0::BIGINT;
CREATE MACRO sys.pg_size_pretty(x) AS x || ' bytes';
CREATE MACRO sys.pg_stat_get_numscans(x) AS 0::BIGINT;

CREATE MACRO sys.may(p) AS regexp_matches(lower(p), 'select|usage|connect');
CREATE MACRO sys.has_table_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_any_column_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_column_privilege(x, c, p) AS sys.may(p), (u, x, c, p) AS sys.may(p);
CREATE MACRO sys.has_schema_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_database_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_sequence_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_function_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_tablespace_privilege(x, p) AS false, (u, x, p) AS false;
CREATE MACRO sys.has_type_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_language_privilege(x, p) AS sys.may(p), (u, x, p) AS sys.may(p);
CREATE MACRO sys.has_server_privilege(x, p) AS false, (u, x, p) AS false;
CREATE MACRO sys.pg_has_role(x, p) AS false, (u, x, p) AS false;

CREATE MACRO sys.quote_ident(x) AS list_transform([x],
  lambda v: if(regexp_full_match(v, '[a-z_][a-z0-9_$]*'), v, '"' || replace(v, '"', '""') || '"'))[1];
CREATE MACRO sys.parse_ident(x) AS list_transform(string_split(x, '.'), lambda v: if(v[1] = '"', trim(v, '"'), lower(v)));
CREATE MACRO sys.quote_literal(x) AS '''' || replace(x, '''', '''''') || '''';
-- Without widths: they would be lengths of texts.
CREATE MACRO sys.formed(f) AS regexp_replace(regexp_replace(f, '%[IL]', '%s', 'g'), '(%%|%s)|%', '\1', 'g');
CREATE MACRO sys.format(f) AS replace(f, '%%', '%'), (f, a) AS printf(sys.formed(f), a),
  (f, a, b) AS printf(sys.formed(f), a, b), (f, a, b, c) AS printf(sys.formed(f), a, b, c);
CREATE MACRO sys.array_to_string(a, s) AS list_transform([a::VARCHAR[]],
    lambda v: if(v IS NULL, NULL, coalesce(list_aggregate(v, 'string_agg', s), '')))[1],
  (a, s, n) AS list_transform([list_transform(a::VARCHAR[], lambda v: coalesce(v, n))],
    lambda v: if(v IS NULL, NULL, coalesce(list_aggregate(v, 'string_agg', s), '')))[1];
CREATE MACRO sys.string_to_array(x, s) AS string_split(x, s);
CREATE MACRO sys.array_upper(a, d) AS nullif(len(a), 0)::INTEGER;
CREATE MACRO sys.array_lower(a, d) AS if(len(a) = 0, NULL, 1);
CREATE MACRO sys.array_length(a, d) AS nullif(len(a), 0)::INTEGER;
CREATE MACRO sys.array_ndims(a) AS if(len(a) = 0, NULL, 1);
CREATE MACRO sys.cardinality(a) AS len(a)::INTEGER;
CREATE MACRO sys.array_position(a, x) AS list_position(a, x);
CREATE MACRO sys.array_remove(a, x) AS list_filter(a, lambda v: v IS DISTINCT FROM x);
CREATE MACRO sys.array_to_json(a) AS to_json(a)::VARCHAR;
CREATE MACRO sys.every(x) AS bool_and(x);
CREATE MACRO sys.btrim(x) AS trim(x), (x, c) AS trim(x, c);
CREATE MACRO sys.char_length(x) AS length(x);

-- Several rows of one: lists here, unnested where they are called.
CREATE MACRO sys.generate_series(a, b) AS list_transform([[a::BIGINT, b::BIGINT]],
    lambda v: if(v[2] - v[1] > 10000, error('long'), generate_series(v[1], v[2])))[1],
  (a, b, s) AS list_transform([[a::BIGINT, b::BIGINT, s::BIGINT]],
    lambda v: if((v[2] - v[1]) / v[3] > 10000, error('long'), generate_series(v[1], v[2], v[3])))[1];
CREATE MACRO sys.generate_subscripts(a, d) AS range(1, len(a) + 1);
CREATE MACRO sys._pg_expandarray(a) AS list_transform(a, lambda v, i: {'x': v, 'n': i::INTEGER});
