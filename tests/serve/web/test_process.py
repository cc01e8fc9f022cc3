"""`sfumato serve` in the demo's folder: a steward, an analyst and a viewer, from the printed link on."""

import json
from urllib.request import Request, urlopen

import pytest

from helpers import browser as headless
from helpers.served import add_user, serve
from helpers.site import write_visits
from helpers.walk import Walk
from sfumato.cli.city import write_demo


@pytest.mark.slow
def test_it_stops_while_somebody_follows_a_job(tmp_path):
    write_visits(tmp_path)
    project = tmp_path / "sfumato.toml"
    project.write_text(project.read_text().replace("approve_above = 3.0", "approve_above = 0.1"))
    token = add_user(tmp_path)
    recipe = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.25\n'
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with serve(tmp_path) as served:

        def call(path, body=None):
            return urlopen(Request(served.page + path, data=body, headers=headers), timeout=60)

        job = json.load(call("/api/release", json.dumps({"recipe": recipe, "name": "x"}).encode()))
        assert job["status"] == "approval"
        followed = call(f"/api/jobs/{job['number']}/events")
        assert followed.readline().startswith(b"data: ")
    assert followed.read().endswith(b"event: end\ndata: {}\n\n")
    followed.close()


class Place:
    """What a walk needs to know of a server elsewhere."""

    def __init__(self, url):
        self.url = url


@pytest.mark.slow
def test_three_people_and_one_command(tmp_path, browser):
    write_demo(tmp_path / "demo")
    with serve(tmp_path / "demo", options=("--link", "steward")) as served, headless.Browser() as second:
        steward = Walk(browser, Place(served.page), width=1280)
        steward.browser.visit(served.addresses["steward"], width=1280)
        steward.look()
        for name, role, share in (("ana", "analyst", "0.5"), ("vic", "viewer", "")):
            steward.go("/people")
            steward.type("#add [name=name]", name)
            steward.type("#add [name=password]", f"{name} password")
            steward.ask(f"document.querySelector('[name=role]').value = {role!r}")
            steward.type("#add [name=share]", share)
            steward.press("[value=add]")
        analyst = Walk(second, Place(served.page), width=390)
        analyst.login("ana")
        analyst.type("#sql", "DP-SELECT 0.25 month, COUNT(*) AS records FROM incidents GROUP BY month")
        analyst.wait("document.querySelector('#price [name=price]')?.value")
        analyst.press("[value=buy]")
        assert analyst.ask("document.querySelectorAll('.answer tbody tr').length") == 12
        steward.go("/wizard")
        steward.press("[name=table]")
        steward.ask("document.querySelector('[name=by][value=month]').checked = true")
        steward.press("[value=preview]")
        steward.type("[name=release]", "by-month")
        steward.browser.follow("document.querySelector('[value=release]').click()")
        finished = "document.querySelector('.lead')?.textContent.includes('Finished')"
        steward.wait(f"document.readyState === 'complete' && {finished}")
        steward.go("/ledger")
        assert steward.ask("document.querySelectorAll('.timeline .charge').length") >= 2
        viewer = analyst
        viewer.login("vic")
        viewer.press("a[href='/releases/by-month']")
        assert viewer.ask("document.querySelectorAll('.files a').length") == 5
