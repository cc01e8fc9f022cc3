"""What waits for a steward: notices on pages and by webhook, what would be left, and how it went on."""

import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import sfumato as sf
from helpers.site import Site
from sfumato.serve.settings import read_settings

DEAR = "DP-SELECT 3.5 COUNT(*) AS n FROM visits WHERE month = 7"
RECIPE = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 4.0\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("approvals")) as served:
        yield served


@contextmanager
def listening(site, *, status=200):
    """A webhook on loopback, and what it was sent; events of the service."""
    heard, events = [], []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            heard.append((self.headers["Content-Type"], self.rfile.read(length).decode(), self.path))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    site.service._log = events.append
    site.service.settings = replace(
        site.service.settings, webhook=f"http://127.0.0.1:{server.server_port}/hook"
    )
    try:
        yield heard, events
    finally:
        site.service.settings = replace(site.service.settings, webhook=None)
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(events, count):
    until = time.monotonic() + 60
    while sum(each["event"] == "webhook" for each in events) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_webhook_hears_that_something_waits_and_nothing_else(site):
    with listening(site) as (heard, events):
        asked = site.call("POST", "/api/sql", by="ana", send={"sql": DEAR})
        assert site.call("POST", "/api/sql", by="ana", send={"sql": DEAR}).status == 409
        begun = site.call("POST", "/api/release", by="ana", send={"recipe": RECIPE, "name": "dear"})
        assert begun.json["status"] == "approval"
        wait_for(events, 2)
        # One for the statement, though it was asked twice, and one for the release.
        assert len(heard) == 2
        assert {kind for kind, _, _ in heard} == {"application/json"}
        told = json.loads(heard[0][1])
        assert told == {
            "text": f"sfumato: request {told['number']} waits for a steward's approval",
            "number": asked.json["error"]["number"],
        }


@pytest.mark.parametrize("status", [302, 500])
def test_a_webhook_that_fails_stops_nothing(site, status):
    with listening(site, status=status) as (heard, events):
        sql = DEAR.replace("7", str(status % 10 + 1))
        assert site.call("POST", "/api/sql", by="ana", send={"sql": sql}).status == 409
        wait_for(events, 1)
        assert [path for _, _, path in heard] == ["/hook"]  # where it leads is not followed
        assert [each["outcome"] for each in events if each["event"] == "webhook"] == ["failed"]


@pytest.mark.parametrize("address", ["http://chat.example.org/hook", "ftp://127.0.0.1/", 5, "/hook"])
def test_a_webhook_is_encrypted_or_here(site, address):
    with pytest.raises(sf.SchemaError, match="webhook"):
        read_settings(site.service.project, webhook=address)
    for good in ("https://chat.example.org/hook", "http://127.0.0.1:9000/hook"):
        assert read_settings(site.service.project, webhook=good).webhook == good


def badge(site, cookie, path="/releases"):
    found = re.search(r'class="badge">(\d+)', site.call("GET", path, cookie=cookie).text)
    return int(found[1]) if found else 0


def test_pages_say_what_waits_and_what_would_be_left(site):
    ana, ada, vic = (site.login(name) for name in ("ana", "ada", "vic"))
    before, waiting = badge(site, ana), badge(site, ada)
    number = site.call("POST", "/api/sql", by="ana", send={"sql": DEAR.replace("3.5", "4.25")}).json["error"][
        "number"
    ]
    assert badge(site, ada) == waiting + 1
    assert (badge(site, ana), badge(site, vic)) == (before, 0)
    page = site.call("GET", "/people", cookie=ada)
    card = page.text.split(f'name="number" value="{number}"')[1].split("</form>")[0]
    budget = site.call("GET", "/api/budget", by="ana").json
    after = (budget["left"] - 4.25, budget["share"]["left"] - 4.25)
    assert re.findall(r"([\d.]+) would be left, of the share of ana ([\d.]+)\.", card) == [
        tuple(f"{each:g}" for each in after)
    ]
    assert 'class="price"' in card
    form = {"csrf": page.csrf, "number": number, "action": "approve"}
    assert site.call("POST", "/people", cookie=ada, form=form).status == 303
    assert (badge(site, ada), badge(site, ana)) == (waiting, before + 1)
    history = site.call("GET", "/history", cookie=ana).text
    assert re.search(r'<li class="approved">.*?by ada.*?Buy it', history, re.DOTALL)
    assert 'class="events"' in site.call("GET", "/people", cookie=ada).text
