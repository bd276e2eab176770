"""Promotional codes: credit once per person."""

from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.utils import timezone

from billing.credit.models import CreditGrant
from billing.payments.models import PromotionalCode
from billing.payments.services.codes import end_code, make_code, redeem_code
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.organizations.services import create_organization
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import balance_cents

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def verified(org: SeededOrganization) -> SeededOrganization:
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=True, primary=True)
    return org


def make(code: str = "spring-25", **changes: object) -> PromotionalCode:
    values: dict[str, object] = {"amount_nanos": 25 * 10**9, "actor": OPERATOR}
    return make_code(code=code, now=timezone.now(), **(values | changes))


def redeem(org: SeededOrganization, code: str = " Spring-25 ", **changes: object) -> object:
    values: dict[str, object] = {"user": org.owner, "now": timezone.now()} | changes
    return redeem_code(organization=org.organization, code=code, **values)


def test_a_code_gives_its_credit(org: SeededOrganization) -> None:
    make(credit_days=30)
    redeem(verified(org))
    grant = CreditGrant.objects.get()
    assert (balance_cents(org), grant.kind) == (2_500, "promotional")
    assert grant.expires_at is not None


def test_once_per_person_in_all_their_organizations(org: SeededOrganization) -> None:
    make()
    redeem(verified(org))
    second = create_organization(actor=OPERATOR, name="Second", owner=org.owner)
    with pytest.raises(Conflict, match="already"):
        redeem_code(organization=second, user=org.owner, code="SPRING-25", now=timezone.now())
    assert PromotionalCode.objects.get().redemption_count == 1


def test_no_more_than_there_are(org: SeededOrganization, outsider: SeededOrganization) -> None:
    make(redemptions_max=1)
    redeem(verified(org))
    with pytest.raises(InvalidValue, match="not valid"):
        redeem(verified(outsider))


def test_what_is_over_is_no_code(org: SeededOrganization) -> None:
    make(expires_at=timezone.now() + timedelta(days=1))
    verified(org)
    with pytest.raises(InvalidValue):
        redeem(org, now=timezone.now() + timedelta(days=2))
    end_code(code="spring-25", actor=OPERATOR, now=timezone.now())
    with pytest.raises(InvalidValue) as refused:
        redeem(org)
    assert refused.value.param == "code"
    assert balance_cents(org) == 0


def test_who_may_not_pay_or_is_unknown_redeems_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    make()
    with pytest.raises(Conflict, match="Verify"):
        redeem(org)
    viewer = org.join("viewer")
    with pytest.raises(NotPermitted):
        redeem(org, user=viewer)
    with pytest.raises(ObjectNotFound):
        redeem(org, user=verified(outsider).owner)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"code": ""}, "code"),
        ({"code": "a b"}, "code"),
        ({"code": "x" * 41}, "code"),
        ({"amount_nanos": 0}, "amount_nanos"),
        ({"amount_nanos": -1}, "amount_nanos"),
        ({"credit_days": 0}, "credit_days"),
        ({"credit_days": 10**9}, "credit_days"),
        ({"expires_at": timezone.now() - timedelta(days=1)}, "expires_at"),
    ],
)
def test_a_bad_code_is_named(db: None, changes: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make(**changes)  # type: ignore[arg-type]
    assert refused.value.param == param


def test_codes_are_the_operators(org: SeededOrganization) -> None:
    make()
    with pytest.raises(Conflict):
        make("SPRING-25")
    with pytest.raises(NotPermitted):
        make("other", actor=org.actor)
