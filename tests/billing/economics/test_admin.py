"""The operator sees engines beside events, with reasons and alarms; nobody else sees them."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from billing.economics.models import EngineLife
from control.accounts.models import User
from tests.fixtures.engines import make_sample, send

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LIST = "/admin/economics/enginelife/"


@pytest.fixture
def page():
    """Return the address of an engine that made 5,000 tokens which no event names."""
    begun = timezone.now() - timedelta(hours=3)
    at = begun + timedelta(minutes=1)
    send(make_sample(0, started_at=begun, at=at, output_tokens=5_000, requests=9, is_last=True))
    return f"{LIST}{EngineLife.objects.get().pk}/change/"


def log_in(person):
    client = Client()
    client.force_login(person)
    return client


def test_an_operator_sees_the_difference_its_reasons_and_the_alarm(page):
    operator = log_in(User.objects.create_superuser("operator@penstock.test"))
    assert b"rep_1" in operator.get(LIST).content
    shown = operator.get(page).content.decode()
    assert "0, 5,000" in shown
    assert "+0, +4,975 ALARM" in shown  # less 16 of probes and a step for each of 9 requests
    assert "test generations that the fleet lost sight of: 16, 16" in shown


def test_nobody_else_does(page):
    for client in (Client(), log_in(User.objects.create_user("member@penstock.test"))):
        assert client.get(page).status_code == 302
        assert client.get(LIST).status_code == 302
