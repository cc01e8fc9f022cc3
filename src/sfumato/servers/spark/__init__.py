"""Tables in Spark: what is counted there, and how its values become codes."""
