"""PostgreSQL's protocol, version 3, on asyncio's streams: the door for psql, drivers, notebooks and BI tools.

`server` has connections up to their login, `session` what comes after it; `messages` are the bytes,
`values` the types, `commands` what statements are, `session_settings` what a session can set, and `answers`
what goes back.
"""
