"""Tables and ledgers on servers: PostgreSQL and Spark. Whoever uses them trusts this room beside the core."""
