"""What may be asked of a table, with its size, its sensitivity and its cost; all of it public.

`counts` has what is counted and what one individual adds to it, `choices` what is chosen privately,
`measurement` requests with their noise and their answers.
"""
