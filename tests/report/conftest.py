"""What the tests of reports share: release folders made by hand, and a browser where one is installed."""

import importlib.util
from pathlib import Path

import pytest


def load(name):
    """A module that lies beside this file."""
    spec = importlib.util.spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def folders():
    """The module that writes release folders by hand."""
    return load("folders")


@pytest.fixture
def browser():
    """A tab of a headless browser, or a skip that says what is missing."""
    module = load("browser")
    if module.find_browser() is None:
        pytest.skip(f"no browser is installed (looked for {', '.join(module.NAMES)})")
    with module.Browser() as opened:
        yield opened
