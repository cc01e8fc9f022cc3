"""The web's doors: pages for people, a JSON API for programs, and an endpoint for agents.

`exchange` reads requests within limits and finds who asks, `app` guards every request and knows all routes.
`frame` is what all pages have, `pages` and `wizard` are those of the roles. `api` answers programs and
describes itself in OpenAPI, `agents` speaks the Model Context Protocol. What may be asked is decided by the
service, and nowhere here.
"""
