"""Tables in PostgreSQL: what is counted there, and how its values become codes."""
