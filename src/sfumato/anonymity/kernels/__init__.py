"""Compiled loops. Their modules load numba, so they are imported where they are first needed."""
