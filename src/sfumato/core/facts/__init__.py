"""Public facts: what may be known about a table before a single record is read.

A `domain` says which values there are, a `column` where they are stored and how they are written, a
`table` whom it protects, a `project` what may be spent. `limits` reads files from outside within limits.
"""
