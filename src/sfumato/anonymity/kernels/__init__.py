"""Compiled loops. They load numba, so they are imported where first needed."""
