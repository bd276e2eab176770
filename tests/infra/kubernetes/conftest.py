"""What the tests of the manifests share."""

import pytest

from tests.fixtures.manifests import Installation, rendered


@pytest.fixture(scope="session")
def installation() -> Installation:
    """The example, and the job that ships a lost gateway's usage into it."""
    return Installation((*rendered("overlays/example"), *rendered("ship-usage")))
