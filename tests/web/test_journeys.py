"""How many files a reader opens to follow a journey: the Python files of the control plane and the
console in which a function runs, and the console's table of URLs where the journey begins there.

Not counted are models, the database connection, what builds the records of the change feed, and
what every page runs (the sign-in page does).
"""

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from django.test import Client

from control.accounts.models import User
from control.admin.base import row_url
from control.api_keys.models import ApiKey
from control.feed.selectors import FeedQuery, page_for
from control.pricing import services as pricing
from control.pricing.models import Price
from control.tasks import deliver_outbox, outbox_worker
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_variant
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).parents[2]
FOLDERS = (str(ROOT / "platform" / "control"), str(ROOT / "web" / "console"))
NOT_COUNTED = (
    "models.py",
    "control/db/",
    "control/feed_records",
    "limits/rate_limits.py",
    "limits/spending.py",
    "catalog/feed.py",
)


def files_of(*steps: Callable[[], object]) -> set[str]:
    """Return the files whose functions run in these steps, in any thread.

    Garbage of earlier tests is collected before, so that no end of theirs is counted.
    """
    found: set[str] = set()

    def trace(frame: FrameType, _: str, __: object) -> None:
        code = frame.f_code
        if code.co_name != "<module>" and code.co_filename.startswith(FOLDERS):
            found.add(str(Path(code.co_filename).relative_to(ROOT)))

    gc.collect()
    gc.disable()
    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        for step in steps:
            step()
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]
        gc.enable()
    return {path for path in found if not any(part in path for part in NOT_COUNTED)}


def assert_files(expected: int, *steps: Callable[[], object]) -> None:
    """Check how many files a reader opens to follow these steps."""

    def sign_in_page() -> None:
        assert Client().get("/accounts/login/").status_code == 200

    sign_in_page()
    found = files_of(*steps) - files_of(sign_in_page)
    if any(path.startswith("web/console/") for path in found):
        found.add("web/console/urls.py")
    assert len(found) == expected, "\n".join(sorted(found))


def test_inviting_a_member(member: Client, org: SeededOrganization) -> None:
    def invite(email: str = "grace@acme.example") -> None:
        form = {"email": email, "role": "viewer"}
        assert member.post(address(org.organization, "team_invite"), form).status_code == 302

    invite("before@acme.example")
    outbox_worker.cache_clear()  # its threads are to begin within the count
    assert_files(16, invite, deliver_outbox)


def test_rotating_a_key(member: Client, org: SeededOrganization, key: ApiKey) -> None:
    def rotate() -> None:
        form = {"overlap": "24", "last_four": key.last_four}
        where = address(org.organization, "key_rotate", key.id)
        assert member.post(where, form).status_code == 302

    assert_files(16, rotate)


def test_publishing_a_price(prices: dict[str, Price]) -> None:
    operator = Client()
    operator.force_login(User.objects.create_superuser("operator@penstock.test"))
    variant = make_variant(make_model("new"))
    book = pricing.draft_book(actor=OPERATOR, name="Next", organization=None)
    pricing.set_price(
        actor=OPERATOR, book=book, variant=variant, input_nanos=150_000_000,
        cached_input_nanos=75_000_000, output_nanos=600_000_000,
    )  # fmt: skip
    page = row_url("admin:pricing_pricebook_publish", book.pk)

    def publish() -> None:
        assert operator.post(page, {"confirmation": ""}).status_code == 302

    def read_feed() -> None:
        assert page_for(FeedQuery(0)).changes

    operator.get(page)
    assert_files(12, publish, read_feed)
