"""What the tests of usage share."""

import pytest

from serving import internal_http
from serving.usage import claims, lease_sync, leases


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let money and control come when they can: on a busy machine two seconds are too few. A wait
    that is to end is made short where it is."""
    for module, name in (
        (internal_http, "CONNECT_SECONDS"),
        (leases, "WAIT_SECONDS"),
        (lease_sync, "LEASE_SECONDS"),
        (claims, "CLAIM_SECONDS"),
        (claims, "KEEP_TRY_SECONDS"),
        (claims, "END_SECONDS"),
        (claims, "KEEP_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 60.0)
