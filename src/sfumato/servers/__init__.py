"""Tables and ledgers on servers: PostgreSQL and Spark. Whoever uses them trusts this room beside the core."""

from sfumato.core.ledger.store import Store, register_server


def _locate(url: str) -> Store:
    from sfumato.servers.ledger import locate_store

    return locate_store(url)


register_server(_locate)
