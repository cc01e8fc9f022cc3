"""What the tests share: small projects, and the public tables beside the project."""

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

from helpers import browser as headless
from helpers import probe_recipe
from helpers.projects import PROJECT
from helpers.sources import ScriptedSource, SeededSource, seed_noise
from sfumato.recipes.files import RECIPES

# No test may depend on a time: machines are busy. Properties are tried on few examples here, and on many with
# the slow tests (`--hypothesis-profile=many`); those that must notice a planted fault say how many they need.
for profile, examples in (("few", 30), ("many", 100)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("few")

# Whoever starts the tests in the background has their processes ignore interrupts, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared():
    """The folder of public tables, or a skip that says what is missing."""
    if not SHARED.is_dir():
        pytest.skip("the public tables (../shared) are not beside the project")
    return SHARED


@pytest.fixture
def browser():
    """A tab of a headless browser, or a skip that says what is missing."""
    if headless.find_browser() is None:
        pytest.skip(f"no browser is installed (looked for {', '.join(headless.NAMES)})")
    with headless.Browser() as opened:
        yield opened


@pytest.fixture
def people():
    """Ten people with one to five records each."""
    rows = [
        {"person": person, "region": "abc"[(person + record) % 3], "month": 1 + (person * record) % 12}
        for person in range(10)
        for record in range(1 + person % 5)
    ]
    return pa.Table.from_pylist(rows)


@pytest.fixture
def project(tmp_path, people):
    """A folder with a project file, a table of people and a recipe; returns the project file."""
    pq.write_table(people, tmp_path / "t.parquet")
    (tmp_path / "recipe.toml").write_text(
        'recipe = "cell-counts"\ntable = "t"\nby = ["region", "month"]\nepsilon = 1.0\n'
    )
    file = tmp_path / "sfumato.toml"
    file.write_text(PROJECT)
    return file


@pytest.fixture
def probe(monkeypatch):
    """The module of a recipe that asks by what it has seen, known to recipe files for this test."""
    monkeypatch.setitem(RECIPES, "probe", probe_recipe.Probe)
    return probe_recipe


@pytest.fixture
def seeded():
    return SeededSource


@pytest.fixture
def seeded_noise():
    """The test's noise is that of one public seed, so that what it says of noisy values holds for ever."""
    with seed_noise():
        yield


@pytest.fixture(autouse=True)
def seeded_statistics(request):
    """Tests by many draws give one verdict for ever, unless they are marked as `statistical(real=True)`."""
    mark = request.node.get_closest_marker("statistical")
    if mark is not None and not mark.kwargs.get("real"):
        request.getfixturevalue("seeded_noise")


@pytest.fixture
def scripted():
    return ScriptedSource


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, or a skip that says what is missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'sfumato[postgres]'")
    from helpers import postgres_server

    if missing := postgres_server.why_missing():
        pytest.skip(missing)
    server = postgres_server.Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", postgres_server.PASSWORD)
        yield server
    server.stop()
