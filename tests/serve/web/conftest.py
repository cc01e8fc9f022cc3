"""What the tests of the web share: a served project, and a browser where one is installed."""

import pytest

from helpers import browser as headless
from helpers.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory):
    """A project that is served to three people."""
    pytest.importorskip("uvicorn")
    with Site(tmp_path_factory.mktemp("site")) as served:
        yield served


@pytest.fixture
def browser():
    """A tab of a headless browser, or a skip that says what is missing."""
    if headless.find_browser() is None:
        pytest.skip(f"no browser is installed (looked for {', '.join(headless.NAMES)})")
    with headless.Browser() as opened:
        yield opened
