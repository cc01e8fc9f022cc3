"""What may be asked of a table, with its size, its sensitivity and its cost."""
