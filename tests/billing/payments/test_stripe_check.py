"""`penstock billing stripe-check`: the whole path with a test key, and nothing left behind."""

import dataclasses
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from billing.payments.models import StripePayment
from control.organizations.models import Organization
from tests.simulation.stripe_double import Fault, StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("stripe_check", *arguments, stdout=out)
    return out.getvalue()


def test_it_runs_the_whole_path_and_leaves_nothing_here(stripe: StripeDouble) -> None:
    lines = run().splitlines()
    assert [line[:5] for line in lines[:-1]] == [f"[{n}/7]" for n in range(1, 8)]
    assert "Stripe works with these keys." in lines[-1]
    assert len(stripe.succeeded()) == len(stripe.all("refund")) == 1
    assert not Organization.objects.exists()
    assert not StripePayment.objects.exists()


def test_it_publishes_nothing_while_stripe_is_asked(
    stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing takes a lock until the end of the transaction, and all others wait for it."""

    def lock(*_: object) -> None:
        raise AssertionError("the feed is locked")

    monkeypatch.setattr("control.organizations.services.publish", lock)
    assert "Stripe works with these keys." in run()


def test_programs_get_json(stripe: StripeDouble) -> None:
    assert json.loads(run("--json"))["ok"] is True


def test_live_keys_are_refused(stripe: StripeDouble, settings) -> None:
    keys = dataclasses.replace(stripe.keys, mode="live")
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=keys)
    with pytest.raises(CommandError, match="live mode"):
        run()
    assert stripe.requests == []


def test_without_keys_it_says_which(db: None) -> None:
    with pytest.raises(CommandError, match="STRIPE_SECRET_KEY"):
        run()


def test_a_failing_step_is_named(stripe: StripeDouble) -> None:
    stripe.faults.append(Fault("rate_limit", "refunds", times=9))
    with pytest.raises(CommandError, match=r"^Refund failed"):
        run()
    assert not Organization.objects.exists()
