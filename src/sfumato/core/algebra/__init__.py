"""What statements may ask of records: rows, expressions over them, bounded measures; checked here."""
