"""`close_month` on the command line, and what Celery closes by itself."""

from datetime import timedelta
from io import StringIO
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command

from billing.invoicing import tasks
from billing.invoicing.closes import organizations_behind
from billing.invoicing.models import Close, Invoice
from tests.fixtures.invoicing import (
    AFTER,
    OCTOBER,
    finish_month,
    is_finished,
    october,
    sound,
    use_cents,
)
from tests.fixtures.usage import make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def used(cents_price):
    customer = make_customer("Acme")
    use_cents(customer, cents_price, 1000, october(30))
    finish_month()
    return customer


def run(*arguments: str, now=AFTER) -> str:
    out = StringIO()
    with patch("django.utils.timezone.now", return_value=now):
        call_command("close_month", *arguments, stdout=out)
    return out.getvalue()


def test_a_dry_run_prints_what_would_be_invoiced(used):
    said = run("--period", "2026-10", "--dry-run")
    assert f"{used.id}  1 lines  usage $10.00  credit $0.00  tax $0.00  due $10.00" in said
    assert "2026-10: 1 invoices, $10.00 due; nothing was changed" in said
    assert not Invoice.objects.exists()


def test_a_close_says_how_far_it_is_and_what_it_made(used):
    said = run("--period", "2026-10", "--organization", used.id)
    assert "1 of 1 organizations" in said
    assert "2026-10: 1 invoices made, $10.00 due" in said
    assert "0 invoices made" in run("--period", "2026-10")
    assert sound()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--period", "2026-11"], "is not over"),
        (["--period", "2027-01"], "is not over"),
        (["--period", "2026-9"], "is not a month"),
        (["--period", "2026-10", "--organization", "org_x"], "no organization org_x"),
        (["--period", "2026-11", "--dry-run"], "is not over"),
    ],
)
def test_what_cannot_be_closed_is_said_plainly(used, arguments, words):
    with pytest.raises(CommandError, match=words):
        run(*arguments)
    assert not Close.objects.exists()


def test_a_failure_ends_with_an_error(used):
    with (
        patch("billing.invoicing.drafts.tax_of", side_effect=RuntimeError("down")),
        pytest.raises(CommandError, match="no invoice yet"),
    ):
        run("--period", "2026-10")


def test_the_last_month_is_closed_by_itself_once_it_may_be(used):
    with patch("django.utils.timezone.now", return_value=OCTOBER.ends_at - timedelta(seconds=1)):
        tasks.close_months()
    assert not is_finished()
    with patch("django.utils.timezone.now", return_value=AFTER):
        tasks.close_months()
        tasks.close_months()
    assert is_finished()
    assert Invoice.objects.count() == 1
    assert tasks.due_months(AFTER) == []


def test_a_month_that_was_begun_is_gone_on_with(used):
    Close.objects.create(
        starts_on=OCTOBER.before.starts_on, started_at=AFTER, run_at=AFTER, started_by="x"
    )
    assert tasks.due_months(AFTER) == [OCTOBER.before, OCTOBER]


def test_months_that_went_by_while_nobody_closed_any_are_closed_first():
    august = OCTOBER.before.before
    Close.objects.create(
        starts_on=august.starts_on, started_at=AFTER, run_at=AFTER, finished_at=AFTER,
        started_by="x",
    )  # fmt: skip
    assert tasks.due_months(AFTER) == [OCTOBER.before, OCTOBER]


def test_nobody_is_behind_after_a_close(used):
    run("--period", "2026-10")
    assert organizations_behind() == []
    tasks.settle()
