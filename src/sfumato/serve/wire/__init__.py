"""PostgreSQL's protocol, version 3, on asyncio's streams: the door for psql, drivers, notebooks and BI tools.

`server` has connections up to their login (`scram`), `session` what comes after it; `messages` are the bytes,
`values` the types, `commands` what statements are, `session_settings` what a session can set, and `answers`
what goes back.
"""

from sfumato.serve.wire.server import WireServer, load_certificate
from sfumato.serve.wire.session import Limits

__all__ = ["Limits", "WireServer", "load_certificate"]
