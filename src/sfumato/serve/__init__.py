"""`sfumato serve`: one process in which a team, its tools and the public ask the curator.

`service` is what every door calls and the one place where roles are enforced; `wire` speaks PostgreSQL's
protocol, `catalog` answers its system tables, `web` has the pages, the JSON API and the agents' endpoint.
"""
