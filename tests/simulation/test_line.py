"""The line to Stripe: what goes wrong on it, and what is written down of it."""

import pytest

from billing.payments.errors import StripeAway
from billing.payments.stripe_api import StripeApi
from tests.simulation import line as line_module
from tests.simulation.clock import CHANCE
from tests.simulation.line import LATE, StripeLine
from tests.simulation.stripe_double import KEYS, StripeDouble

ALWAYS = 1.0


@pytest.fixture
def line() -> StripeLine:
    CHANCE.reseed("line")
    return StripeLine(StripeDouble())


@pytest.fixture
def api(line: StripeLine) -> StripeApi:
    return StripeApi(KEYS, line=line)


def in_trouble(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    for share in ("TROUBLE_SHARE", "AGAIN_SHARE"):
        monkeypatch.setattr(line_module, share, ALWAYS)
    monkeypatch.setattr(line_module, "TROUBLES", kinds)


def test_a_calm_line_answers(line: StripeLine, api: StripeApi) -> None:
    line.is_calm = True
    made = api.create_customer({"name": "Acme"}, key="customer:1")
    assert line.double.get("customer", made.id)["name"] == "Acme"
    assert [one.key for one in line.posts] == ["customer:1"]


def test_what_is_late_is_not_answered_and_arrives_once(
    line: StripeLine, api: StripeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_trouble(monkeypatch, LATE)
    with pytest.raises(StripeAway):
        api.create_customer({"name": "Acme"}, key="customer:1")
    assert (len(line.late), line.double.all("customer")) == (3, [])
    line.let_arrive(3)
    assert (line.late, len(line.double.all("customer"))) == ([], 1)


def test_an_error_after_the_work_is_said_again_for_a_day(
    line: StripeLine, api: StripeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_trouble(monkeypatch, "error_after")
    with pytest.raises(StripeAway):
        api.create_customer({"name": "Acme"}, key="customer:1")
    line.is_calm = True
    with pytest.raises(StripeAway):
        api.create_customer({"name": "Acme"}, key="customer:1")
    assert len(line.double.all("customer")) == 1
    now = line.double.clock()
    line.double.clock = lambda: now + 25 * 3600
    api.create_customer({"name": "Acme"}, key="customer:1")
    assert len(line.double.all("customer")) == 2
