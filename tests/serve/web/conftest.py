"""What the tests of the web share: a served project."""

import pytest

from helpers.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory):
    """A project that is served to three people."""
    pytest.importorskip("uvicorn")
    with Site(tmp_path_factory.mktemp("site")) as served:
        yield served
