"""What the tests of reports share: release folders made by hand."""

import pytest

from helpers import release_folders


@pytest.fixture(scope="session")
def folders():
    """The module that writes release folders by hand."""
    return release_folders
