-- What Grafana's data source asks, in our words: the version, tables in the search path, their columns.

SELECT current_setting('server_version_num')::int / 100 AS version

SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'

SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') ORDER BY 1

SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('visits'), 1) = 2 THEN quote_ident(table_schema) = (parse_ident('visits'))[1] AND quote_ident(table_name) = (parse_ident('visits'))[2] ELSE quote_ident(table_name) = 'visits' AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') s) END

SELECT quote_ident(table_name) AS table_name, (SELECT quote_ident(column_name) FROM information_schema.columns c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND udt_name IN ('timestamptz', 'timestamp') ORDER BY ordinal_position LIMIT 1) AS time_column FROM information_schema.tables t WHERE table_schema = 'public' AND EXISTS (SELECT 1 FROM information_schema.columns c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND udt_name = 'float8') LIMIT 1
