"""A real browser walks the path of each role: no complaint, no request elsewhere, nothing too wide."""

import pytest

from helpers.site import Site
from helpers.walk import Walk
from sfumato.serve.web.exchange import WORDS


@pytest.fixture(params=[(1280, False), (390, True)], ids=["laptop", "phone in the dark"])
def walk(browser, site, request):
    width, dark = request.param
    return Walk(browser, site, width=width, dark=dark)


@pytest.mark.slow
def test_an_analyst_asks(walk):
    walk.login("ana")
    price = 0.11 if walk.dark else 0.12
    walk.type("#sql", f"DP-SELECT {price} clinic, COUNT(*) AS n FROM visits GROUP BY clinic")
    walk.wait("document.querySelector('#price [name=price]')?.value")
    assert walk.ask("document.querySelector('#price').ariaLive") == "polite"
    assert walk.ask("document.querySelector('#price svg.budget + *') !== null")
    assert walk.ask("document.querySelector('.paint .k').textContent") == "DP-SELECT"
    assert walk.ask(
        "document.querySelector('.paint').textContent.trim() === document.querySelector('#sql').value"
    )
    walk.look()
    walk.press("[value=buy]")
    assert walk.ask("document.activeElement.id") == "answer"
    assert walk.ask("document.querySelectorAll('.answer svg .whisker').length") >= 9
    assert walk.ask("document.querySelectorAll('.answer tbody tr').length") == 3
    walk.go("/history")
    assert walk.ask("document.querySelector('tbody').textContent.includes('clinic, COUNT(*)')")
    walk.press("tbody a")
    assert "already paid for" in walk.ask("document.querySelector('#price').textContent")
    walk.go("/connect")
    walk.go("/tables")
    assert walk.ask("document.querySelectorAll('section').length") == 2


@pytest.mark.slow
def test_words_are_completed_by_keyboard(walk):
    walk.login("ana")
    walk.type("#sql", "DP-SELECT 0.1 cli")
    assert walk.ask("document.querySelector('#offers').hidden") is False
    assert walk.ask("document.querySelector('#sql').getAttribute('aria-activedescendant')") == "offer-0"
    assert "clinic" in walk.ask("document.querySelector('#offers').textContent")
    walk.look()
    walk.key("Tab")
    assert walk.ask("document.querySelector('#sql').value").startswith("DP-SELECT 0.1 clinic")
    assert walk.ask("document.activeElement.id") == "sql"
    walk.type("#sql", "")
    walk.key(" ", "Space", modifiers=2)
    first = walk.ask("document.querySelector('[aria-selected=true]').dataset.word")
    walk.key("ArrowDown")
    assert walk.ask("document.querySelector('[aria-selected=true]').dataset.word") != first
    walk.key("Escape")
    assert walk.ask("document.querySelector('#offers').hidden")
    walk.key("Tab")
    assert walk.ask("document.activeElement.id") != "sql"


@pytest.mark.slow
def test_the_keyboard_is_enough(walk):
    walk.login("ana")
    walk.go("/ask")
    walk.key("Tab")
    assert walk.ask("document.activeElement.className") == "skip"
    walk.key("Enter")
    walk.wait("document.activeElement?.id === 'main' || location.hash === '#main'")
    walk.key("Tab")
    assert walk.ask("document.activeElement.id") == "sql"
    walk.type("#sql", f"DP-SELECT 0.1 AVG(fee) AS mean FROM visits WHERE month < {2 + walk.dark} -- ")
    walk.wait("document.querySelector('#price [name=price]')?.value")
    walk.key("Enter", modifiers=2)
    walk.wait("document.activeElement?.id === 'answer'")
    walk.look()


@pytest.mark.slow
def test_a_steward_describes_releases_and_adds_people(walk):
    name = f"walked-{walk.width}"
    walk.browser.visit(
        f"{walk.site.url}/enter?link={walk.site.service.make_steward_link()}",
        width=walk.width,
        dark=walk.dark,
    )
    walk.look()
    assert walk.ask("document.querySelector('h1').textContent") == "Overview"
    walk.go("/wizard")
    walk.type("[name=source]", "visits.parquet")
    walk.press("button.primary")
    walk.type("[name=codebook]", "clinic: North, South, Harbour\nmonth: 1..12")
    walk.ask("document.querySelector('[name=unit]').value = 'person'")
    walk.type("[name=max_records]", "2")
    walk.press("[value=codebook]")
    walk.ask("document.querySelector('[name=by][value=month]').checked = true")
    walk.press("[value=preview]")
    assert walk.ask("document.querySelectorAll('.split svg rect').length") == 12
    assert "range = [1, 12]" in walk.ask("document.querySelector('pre').textContent")
    walk.go("/wizard")
    walk.press("[name=table]")
    walk.ask("document.querySelector('[name=by][value=month]').checked = true")
    walk.press("[value=preview]")
    walk.type("[name=release]", name)
    walk.browser.follow("document.querySelector('[value=release]').click()")  # it loads itself again
    finished = "document.querySelector('.lead')?.textContent.includes('Finished')"
    walk.wait(f"document.readyState === 'complete' && {finished}")
    walk.press("a.primary")
    walk.wait(f"document.querySelector('h1')?.textContent === {name!r}")
    walk.go("/people")
    walk.type("#add [name=name]", f"new-{walk.width}")
    walk.ask("document.querySelector('#add [name=role]').value = 'viewer'")
    walk.press("[value=add]")
    assert walk.ask("document.querySelector('[role=status] pre').textContent").startswith("sf_")
    walk.go("/ledger")
    assert walk.ask("document.querySelectorAll('.timeline .charge').length") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ada", "ana", "vic"])
def test_every_page_of_a_role_can_be_reached_and_heard(walk, name):
    walk.login(name)
    role = {"ada": "steward", "ana": "analyst", "vic": "viewer"}[name]
    others = () if role == "viewer" else ("/ask/choose", "/ask/basket")
    for place in (*(place for place, _ in WORDS["places"][role]), *others):
        walk.go(place)


@pytest.mark.slow
def test_a_viewer_reads(walk, tmp_path):
    recipe = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.2\n'
    name = f"read-{walk.width}"
    begun = walk.site.call("POST", "/api/release", by="ada", send={"recipe": recipe, "name": name}).json
    walk.site.call("GET", f"/api/jobs/{begun['number']}/events", by="ada")
    walk.login("vic")
    assert walk.ask("location.pathname") == "/releases"
    assert walk.ask("document.querySelectorAll('.top nav a').length") == 3
    walk.press(f"a[href='/releases/{name}']")
    assert walk.ask(
        "[...document.querySelectorAll('.files a')].some(each => each.href.endsWith('certificate.json'))"
    )
    walk.browser.scripted = False  # a report is in a sandbox
    walk.browser.follow("document.querySelector('#report + p a').click()")
    asked, faults = walk.browser.heard()
    assert faults == []
    assert len(asked) == 1
    assert walk.ask("document.querySelectorAll('section').length") >= 8
    assert walk.ask("getComputedStyle(document.body).margin") == "0px"


def test_without_scripts_everything_works(browser, site):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.scripted = False
    walk = Walk(browser, site, width=800)
    got = site.call("POST", "/login", form={"name": "ana", "password": "ana password", "next": "/"})
    name, _, value = got.cookie.partition("=")
    browser.call("Network.setCookie", name=name, value=value, url=site.url)
    walk.go("/ask")
    walk.type("#sql", "DP-SELECT 0.13 COUNT(*) AS n FROM visits")
    walk.press("[value=price]")
    walk.press("[value=buy]")
    assert walk.ask("document.querySelectorAll('.answer tbody tr').length") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["laptop", "phone in the dark"])
def test_an_analyst_who_writes_no_sql_has_a_dashboard(browser, tmp_path, width, dark):
    """From nothing to a dashboard with error bars that others see, by picking and pressing alone."""
    with Site(tmp_path) as site:
        walk = Walk(browser, site, width=width, dark=dark)

        def choose(**fields):
            walk.go("/ask/choose")
            for name, value in fields.items():
                field = f"document.querySelector('[name={name}]')"
                walk.ask(f"{field}.value = {value!r}")
                walk.ask(f"{field}.dispatchEvent(new Event('change', {{bubbles: true}}))")
                walk.wait(f"document.querySelector('[data-part=sql] pre').textContent.includes({value!r})")
            walk.wait("document.querySelector('[value=buy]:not(:disabled)') !== null")

        walk.login("ana")
        walk.go("/dashboards")
        assert walk.ask("document.querySelector('main').textContent.includes('There is none yet')")
        choose(by="clinic")
        walk.press("[value=buy]")
        walk.ask("document.querySelector('.tools details').open = true")
        walk.look()
        walk.type(".tools [name=title]", "Visits by clinic")
        walk.type(".tools [name=note]", "Each person counts twice at most.")
        walk.type(".tools [name=name]", "Clinics")
        walk.press(".tools details button.primary")
        assert walk.ask("document.querySelector('h1').textContent") == "Clinics"
        assert walk.ask("document.querySelectorAll('.board svg .whisker').length") == 9
        place = walk.ask("location.pathname")
        # Two more, planned together and bought once.
        for measure in ("COUNT(*)", "COUNT(DISTINCT person)"):
            choose(measure=measure, by="month")
            walk.press("[value=basket]")
        assert walk.ask("document.querySelectorAll('tbody tr').length") == 2
        walk.press("[value=buy]")
        assert walk.ask("document.querySelectorAll('.answer svg .band').length") == 2
        walk.ask("document.querySelector('.answer details').open = true")
        walk.press(".answer details button.primary")
        assert walk.ask("location.pathname") == place
        assert walk.ask("document.querySelectorAll('.board svg .band').length") == 1
        walk.press("[value=up]")
        walk.press("[value=refresh]")
        walk.ask("document.querySelector('.tools details').open = true")
        walk.ask("document.querySelector('[name=shared]').value = 'viewer'")
        walk.press("[value=share]")
        spent = site.spent()
        walk.login("vic")
        walk.go("/dashboards")
        walk.press(".card a")
        assert walk.ask("document.querySelectorAll('.board svg .whisker, .board svg .band').length") == 10
        assert walk.ask("document.querySelectorAll('main form').length") == 0
        walk.login("ana")
        walk.go("/history")
        assert walk.ask("document.querySelectorAll('.timeline .charge').length") >= 2
        assert site.spent() == spent
