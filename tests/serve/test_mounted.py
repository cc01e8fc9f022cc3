"""Under a path of another host behind nginx, several projects on one server, a table that the wizard adds."""

import contextlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import urllib.parse
from contextlib import ExitStack

import pytest

from helpers.cli import run_main
from helpers.served import PASSWORD, add_user, serve
from helpers.site import Site

psycopg = pytest.importorskip("psycopg", reason="`make engines` installs psycopg")

COUNT = "DP-SELECT 0.25 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-Proto https;
  server {{
    listen 127.0.0.1:{port};
    location /data {{ proxy_pass {page}; }}
  }}
  server {{
    listen 127.0.0.1:{stripping};
    location /data/ {{ proxy_pass {page}/; }}
  }}
}}
"""


class Browser:
    """Follows links as a browser does: cookies by their paths, redirects, nothing outside `/data`."""

    def __init__(self, port):
        self.port, self.cookies = port, {}

    def get(self, path, *, form=None):
        """The status and text of a page that is led to."""
        assert path.startswith("/data"), path
        held = [pair for pair, below in self.cookies.items() if path.startswith(below)]
        sent = {"Host": "clinic.example", "Origin": "https://clinic.example", "Cookie": "; ".join(held)}
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as line:
            line.request("GET" if form is None else "POST", path, body=body, headers=sent)
            reply = line.getresponse()
            text = reply.read().decode("utf-8", "replace")
        for each in reply.headers.get_all("Set-Cookie") or ():
            pair, *rest = each.split("; ")
            assert "Secure" in rest
            below = next(part[5:] for part in rest if part.startswith("Path="))
            self.cookies = {k: v for k, v in self.cookies.items() if k.split("=")[0] != pair.split("=")[0]}
            self.cookies[pair] = below
        if reply.status == 303:
            return self.get(reply.headers["Location"])
        return reply.status, text

    def sign_in(self, base, name):
        status, page = self.get(f"{base}/")
        assert status == 200
        assert 'name="password"' in page
        return self.get(f"{base}/login", form={"name": name, "password": PASSWORD, "next": "/"})


@pytest.fixture
def proxied(folder, monkeypatch):
    """Starts nginx before a server of two projects under /data; gives both, and nginx' two ports."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("the Debian package nginx-light is not installed")
    heart = folder / "heart"
    heart.mkdir()
    for name in ("sfumato.toml", "visits.parquet"):
        shutil.copy(folder / name, heart / name)
    with (folder / "sfumato.toml").open("a") as project:
        project.write(
            '[serve]\nbehind_proxy = true\nbase = "/data"\nnames = ["clinic.example"]\n'
            '[serve.projects]\nheart = "heart"\n'
        )
    add_user(folder, "ana")
    add_user(folder, "sue", role="steward")
    add_user(heart, "ana", role="viewer")
    add_user(heart, "ben")
    with ExitStack() as stack:
        with ExitStack() as held:
            free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            port, stripping = (each.getsockname()[1] for each in free)
        served = stack.enter_context(serve(folder))
        page = f"http://127.0.0.1:{served.addresses['http_port']}"
        facts = {"folder": folder, "page": page, "port": port, "stripping": stripping}
        (folder / "nginx.conf").write_text(NGINX.format(**facts))
        proxy = subprocess.Popen([nginx, "-e", folder / "nginx.log", "-c", folder / "nginx.conf"])
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        for each in (port, stripping):
            while proxy.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", each)):
                    break
        yield served, port, stripping


def find_links(page):
    return {*re.findall(r'\s(?:href|src|action|data-[a-z]+)="(/[^"#]*)', page)}


@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize(("base", "name"), [("/data", "sue"), ("/data/p/heart", "ben")])
def test_every_link_form_and_cookie_follows_the_base(proxied, base, name, strips):
    browser = Browser(proxied[2] if strips else proxied[1])
    browser.sign_in(base, name)
    assert {*browser.cookies.values()} == {base}
    seen, waiting = set(), {f"{base}/"}
    while waiting:
        path = waiting.pop()
        seen.add(path)
        status, page = browser.get(path.replace("&amp;", "&"))
        assert status in ((200, 405, 422) if path.endswith(("/logout", "/price", "/csv")) else (200,)), path
        links = find_links(page)
        assert all(link.startswith(f"{base}/") for link in links), path
        waiting |= {link for link in links if "logout" not in link} - seen
    assert {f"{base}/ask", f"{base}/connect", f"{base}/openapi.json", f"{base}/static/"} <= {
        re.sub(r"(?<=static/).*", "", path) for path in seen
    }
    described = browser.get(f"{base}/openapi.json")[1]
    assert f'"servers":[{{"url":"{base}"}}]' in described
    assert f"{base}/mcp" in browser.get(f"{base}/connect")[1]
    csrf = re.search(r'name="csrf" value="([^"]+)"', browser.get(f"{base}/ask")[1]).group(1)
    answer = browser.get(f"{base}/ask", form={"csrf": csrf, "sql": COUNT, "buy": "yes"})
    assert answer[0] == 200
    left = browser.get(f"{base}/logout", form={"csrf": csrf})
    assert 'name="password"' in left[1]


def test_each_project_has_its_people_its_tables_and_its_budget(proxied, folder):
    served = proxied[0]
    assert served.addresses["project heart"] == f"{served.page}/p/heart"

    def connect(name, database):
        return psycopg.connect(served.dsn(name).replace("dbname='visits'", f"dbname='{database}'"))

    with connect("ben", "heart") as connection:
        assert connection.execute(COUNT).fetchall()
        assert connection.execute("SELECT current_database()").fetchone() == ("heart",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect("ben", "visits")
    with connect("ana", "heart") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(COUNT)  # a viewer there, an analyst here
    with connect("ana", "anything") as connection:
        assert connection.execute(COUNT).fetchall()
    browser = Browser(proxied[1])
    assert "Releases" in browser.sign_in("/data/p/heart", "ana")[1]
    assert 'name="password"' in browser.get("/data/")[1]  # no session of one is one of the other
    for place in (folder, folder / "heart"):
        spent = run_main("budget", "--json", cwd=place).stdout
        assert '"spent": "0.25"' in spent
    assert browser.get("/data/p/nobody/")[0] == 404


def test_a_table_of_the_wizard_is_served_at_once(tmp_path):
    with Site(tmp_path) as site:
        shutil.copy(site.folder / "visits.parquet", site.folder / "more.parquet")
        cookie = site.login("ada")
        csrf = site.call("GET", "/wizard", cookie=cookie).csrf
        facts = {"source": "more.parquet", "unit": "person", "max_records": "2", "epsilon": "0.5"}
        kinds = list(site.service.curator.describe_table("visits"))
        place = kinds.index("clinic")
        facts |= {f"way.{place}": "values", f"words.{place}": "North, South", "by": "clinic"}
        reply = site.call("POST", "/wizard", form={**facts, "csrf": csrf, "step": "serve"}, cookie=cookie)
        assert (reply.status, reply.headers["Location"]) == (303, "/tables")
        told = {each["name"] for each in site.call("GET", "/api/tables", by="ana").json["tables"]}
        assert told == {"visits", "clinics", "more"}
        asked = {"sql": "DP-SELECT 0.5 clinic, COUNT(*) AS n FROM more GROUP BY clinic"}
        assert len(site.call("POST", "/api/sql", by="ana", send=asked).json["rows"]) == 2
        before = (site.folder / "sfumato.toml").read_bytes()
        for wrong in ({}, {"name": "again", "unit": "clinic", f"words.{place}": "North"}):
            form = {**facts, "csrf": csrf, "step": "serve", **wrong}
            assert site.call("POST", "/wizard", form=form, cookie=cookie).status == 422
            assert (site.folder / "sfumato.toml").read_bytes() == before
        vic = site.login("vic")
        csrf = site.call("GET", "/connect", cookie=vic).csrf
        form = {**facts, "csrf": csrf, "step": "serve", "name": "third"}
        assert site.call("POST", "/wizard", form=form, cookie=vic).status == 403
