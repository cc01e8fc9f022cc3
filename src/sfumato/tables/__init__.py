"""Tables in and out: the one reader of files and frames, the one durable writer, numpy and Arrow.

Whoever reads a file reads it here: a separator, an encoding and an empty cell mean the same everywhere.
"""
