"""Ingest books every event once, whatever the order, the repeats and the neighbours."""

import pytest

from billing.credit.models import CreditGrant, GrantKind, Lease
from billing.credit.selectors import balance
from billing.credit.services.grants import grant_credit
from billing.metering.ingest import ingest
from billing.metering.integrity import check_all
from billing.metering.models import DeadLetter, Tally, UsageEvent
from tests.support.usage import NOW, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def test_an_event_is_booked_once_however_often_it_is_sent(customer, price):
    event = make_event(customer, price)
    first = ingest(make_batch([event, event]), now=NOW)
    second = ingest(make_batch([event]), now=NOW)
    assert (first.accepted, first.duplicates) == (1, 1)
    assert (second.accepted, second.duplicates) == (0, 1)
    assert UsageEvent.objects.get().charged_nanos == 132_000
    assert balance(customer.organization, NOW) == -132_000
    assert all(finding.holds for finding in check_all()), check_all()
