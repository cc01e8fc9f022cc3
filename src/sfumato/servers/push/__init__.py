"""Statements that are aggregated by the server that has their table."""
