"""What the tests of reports share: release folders made by hand, and a browser where one is installed."""

import pytest

from helpers import browser as headless
from helpers import release_folders


@pytest.fixture(scope="session")
def folders():
    """The module that writes release folders by hand."""
    return release_folders


@pytest.fixture
def browser():
    """A tab of a headless browser, or a skip that says what is missing."""
    if headless.find_browser() is None:
        pytest.skip(f"no browser is installed (looked for {', '.join(headless.NAMES)})")
    with headless.Browser() as opened:
        yield opened
