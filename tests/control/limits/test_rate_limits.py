"""Rate limits: tiers that are reached by paying, what operators and members set otherwise, and how
many gateways there are; all of it published in the transaction that decides it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from control.api_keys.models import ApiKey
from control.audit.models import AuditEvent
from control.dataplane.gateways import record_heartbeat
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.feed.selectors import last_record, last_version
from control.limits import rate_limits
from control.limits.models import RATE_LIMIT_FIELDS, UsageTier
from control.limits.usage_tiers import on_payment, update_usage_tiers
from control.organizations.projects import archive_project
from control.organizations.services import rename_organization
from serving.contract.records import (
    ApiKeyRecord,
    GatewayCountRecord,
    ModelRateLimits,
    OrganizationRecord,
    ProjectRecord,
    RateLimitSettings,
    UsageTierRecord,
)
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEN = {"requests_per_minute": 10}


def said(kind: str, id_: str, of: type[Any]) -> Any:
    """Return a record as gateways read it."""
    return msgspec.json.decode(last_record(kind, id_) or "null", type=of)


def organization(org: SeededOrganization) -> OrganizationRecord:
    found: OrganizationRecord = said("organization", org.id, OrganizationRecord)
    return found


def tier(name: str = "One", paid: int = 0, **figures: int) -> UsageTier:
    return rate_limits.create_usage_tier(
        actor=OPERATOR, name=name, paid_min_nanos=paid, figures=figures or TEN
    )


# Tiers


def test_a_tier_is_published_with_its_models(org: SeededOrganization) -> None:
    made = tier(requests_per_minute=60, output_tokens_per_minute=9_000)
    model = make_model()
    rate_limits.set_usage_tier_model_limit(actor=OPERATOR, tier=made, model=model, figures=TEN)
    record = said("limit_tier", made.id, UsageTierRecord)
    assert record.limits == RateLimitSettings(
        requests_per_minute=60, output_tokens_per_minute=9_000
    )
    assert record.model_limits == (
        ModelRateLimits(model.id, RateLimitSettings(requests_per_minute=10)),
    )
    rate_limits.change_usage_tier(
        actor=OPERATOR, tier=made, changes={"requests_per_minute": None, "name": "First"}
    )
    rate_limits.set_usage_tier_model_limit(actor=OPERATOR, tier=made, model=model, figures=None)
    record = said("limit_tier", made.id, UsageTierRecord)
    assert (record.limits, record.model_limits) == (
        RateLimitSettings(output_tokens_per_minute=9_000),
        (),
    )
    actions = set(AuditEvent.objects.filter(target_id=made.id).values_list("action", flat=True))
    assert actions == {"usage_tier.created", "usage_tier.updated", "usage_tier.model_limit_set"}


def test_a_tier_says_which_service_tiers_its_organizations_may_use(
    org: SeededOrganization,
) -> None:
    made = tier()
    assert said("limit_tier", made.id, UsageTierRecord).service_tiers is None
    rate_limits.change_usage_tier(
        actor=OPERATOR, tier=made, changes={"service_tiers": ["flex", "default", "flex"]}
    )
    assert said("limit_tier", made.id, UsageTierRecord).service_tiers == ("default", "flex")
    with pytest.raises(InvalidValue, match=r"service_tiers is 'fast'; wanted .*priority, default"):
        rate_limits.change_usage_tier(
            actor=OPERATOR, tier=made, changes={"service_tiers": ["fast"]}
        )
    rate_limits.change_usage_tier(actor=OPERATOR, tier=made, changes={"service_tiers": []})
    assert said("limit_tier", made.id, UsageTierRecord).service_tiers is None


def test_two_tiers_share_neither_name_nor_amount(org: SeededOrganization) -> None:
    tier("One", 0)
    for name, paid in (("One", 5), ("Two", 0)):
        with pytest.raises(Conflict):
            tier(name, paid)
    two = tier("Two", 5)
    with pytest.raises(Conflict):
        rate_limits.change_usage_tier(actor=OPERATOR, tier=two, changes={"paid_min_nanos": 0})


@pytest.mark.parametrize("value", [0, -1, 10**9 + 1])
def test_a_limit_that_no_gateway_would_read_is_refused(org: SeededOrganization, value: int) -> None:
    with pytest.raises(InvalidValue):
        tier(requests_per_minute=value)
    with pytest.raises(InvalidValue):
        rate_limits.set_own_limits(
            actor=org.actor, organization=org.organization, owner_id=org.project.id,
            figures={"concurrent_requests": value},
        )  # fmt: skip


def test_members_set_neither_tiers_nor_their_organizations_limits(org: SeededOrganization) -> None:
    with pytest.raises(NotPermitted):
        rate_limits.create_usage_tier(actor=org.actor, name="Mine", paid_min_nanos=0, figures={})
    with pytest.raises(NotPermitted):
        rate_limits.set_rate_limit_override(
            actor=org.actor, organization=org.organization, model=None, figures=TEN
        )


# Who stands where


def test_an_organization_rises_with_what_it_has_paid_and_falls_with_what_it_gets_back() -> None:
    first, second, third = tier("One"), tier("Two", 10**9), tier("Three", 5 * 10**9)
    org = make_organization("Riser")
    assert organization(org).limit_tier_id == first.id
    for paid, stands in ((999_999_999, first), (10**9, second), (10**10, third), (0, first)):
        on_payment(organization_id=org.id, paid_nanos=paid, now=NOW)
        assert organization(org).limit_tier_id == stands.id
        standing = rate_limits.organization_usage_tier(org.organization)
        assert (standing.paid_nanos, standing.tier) == (paid, stands)
    moves = AuditEvent.objects.filter(target_id=org.id, action="organization.usage_tier_changed")
    assert [entry.details["after"]["usage_tier"] for entry in moves.order_by("id")] == [
        "One", "Two", "Three", "One",
    ]  # fmt: skip


def test_what_changes_no_tier_publishes_nothing(org: SeededOrganization) -> None:
    on_payment(organization_id=org.id, paid_nanos=10**9, now=NOW)
    version = last_version()
    on_payment(organization_id=org.id, paid_nanos=10**12, now=NOW)
    assert last_version() == version
    with pytest.raises(ObjectNotFound):
        on_payment(organization_id="org_nobody", paid_nanos=1, now=NOW)


def test_changed_tiers_move_who_should_stand_elsewhere_once(
    org: SeededOrganization, outsider: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.limits.usage_tiers.PAGE", 1)
    on_payment(organization_id=org.id, paid_nanos=10**9, now=NOW)
    first = tier("One")
    assert update_usage_tiers(now=NOW) == 2
    second = tier("Two", 10**9)
    assert [update_usage_tiers(now=NOW), update_usage_tiers(now=NOW)] == [1, 0]
    assert organization(org).limit_tier_id == second.id
    assert organization(outsider).limit_tier_id == first.id
    rate_limits.change_usage_tier(
        actor=OPERATOR, tier=second, changes={"paid_min_nanos": 2 * 10**9}
    )
    assert update_usage_tiers(now=NOW) == 1
    assert organization(org).limit_tier_id == first.id


def test_other_news_of_an_organization_keep_its_limits(org: SeededOrganization) -> None:
    made = tier()
    update_usage_tiers(now=NOW)
    rate_limits.set_rate_limit_override(
        actor=OPERATOR, organization=org.organization, model=None, figures=TEN
    )
    rename_organization(actor=org.actor, organization=org.organization, name="Other")
    rate_limits.set_own_limits(
        actor=org.actor, organization=org.organization, owner_id=org.project.id, figures=TEN
    )
    record = organization(org)
    assert (record.limit_tier_id, record.own_limits) == (
        made.id,
        RateLimitSettings(requests_per_minute=10),
    )


# What is set otherwise


def test_an_operator_sets_and_lifts_what_an_organization_has_instead(
    org: SeededOrganization,
) -> None:
    model, mine = make_model(), org.organization

    def put(model: Any, figures: dict[str, int] | None) -> OrganizationRecord:
        rate_limits.set_rate_limit_override(
            actor=OPERATOR, organization=mine, model=model, figures=figures
        )
        return organization(org)

    assert put(None, TEN).own_limits == RateLimitSettings(requests_per_minute=10)
    assert put(None, {"concurrent_requests": 3}).own_limits == RateLimitSettings(
        requests_per_minute=10, concurrent_requests=3
    )
    on_model = put(model, {}).own_model_limits
    assert on_model == (ModelRateLimits(model.id, RateLimitSettings()),)
    assert put(None, None).own_limits is None
    assert put(model, None).own_model_limits == ()
    entries = AuditEvent.objects.filter(
        action="organization.rate_limits_updated", organization_id=org.id
    )
    assert entries.count() == 5
    assert entries.latest("id").details["model"] == model.public_id


def test_what_holds_is_the_tiers_row_but_for_the_operators(org: SeededOrganization) -> None:
    made, small, large = tier(), make_model("small"), make_model("large")
    rate_limits.set_usage_tier_model_limit(actor=OPERATOR, tier=made, model=small, figures=TEN)
    update_usage_tiers(now=NOW)
    rate_limits.set_rate_limit_override(
        actor=OPERATOR, organization=org.organization, model=large, figures=TEN
    )
    rows = [(row.model_name, row.is_own) for row in rate_limits.effective_limits(org.organization)]
    assert rows == [("", False), ("large", True), ("small", False)]


def test_members_limit_a_project_and_a_key(org: SeededOrganization, key: ApiKey) -> None:
    for owner_id in (org.project.id, key.id):
        limits = rate_limits.set_own_limits(
            actor=org.actor, organization=org.organization, owner_id=owner_id, figures=TEN
        )
        assert limits == RateLimitSettings(requests_per_minute=10)
    assert said("project", org.project.id, ProjectRecord).limits == limits
    assert said("api_key", key.id, ApiKeyRecord).limits == limits
    lifted = rate_limits.set_own_limits(
        actor=org.actor, organization=org.organization, owner_id=key.id,
        figures=dict.fromkeys(RATE_LIMIT_FIELDS),
    )  # fmt: skip
    assert said("api_key", key.id, ApiKeyRecord).limits == lifted == RateLimitSettings()


def test_another_organizations_projects_and_keys_are_not_there(
    org: SeededOrganization, outsider: SeededOrganization, key: ApiKey
) -> None:
    for owner_id in (org.project.id, key.id, org.id, "proj_nobody"):
        with pytest.raises(ObjectNotFound):
            rate_limits.set_own_limits(
                actor=outsider.actor, organization=outsider.organization, owner_id=owner_id,
                figures=TEN,
            )  # fmt: skip
        assert rate_limits.own_limits(outsider.organization, owner_id) == RateLimitSettings()


def test_what_has_ended_is_not_limited(org: SeededOrganization) -> None:
    archive_project(actor=org.actor, project=org.project)
    with pytest.raises(Conflict):
        rate_limits.set_own_limits(
            actor=org.actor, organization=org.organization, owner_id=org.project.id,
            figures=TEN,
        )  # fmt: skip


# How many gateways there are


def live(name: str, after: float = 0.0, *, leaving: bool = False) -> int:
    at = NOW + timedelta(seconds=after)
    return record_heartbeat(gateway_id=name, is_leaving=leaving, now=at)


def test_gateways_are_counted_while_they_say_that_they_live(db: None) -> None:
    assert [live("a"), live("b"), live("c"), live("a", 5)] == [1, 2, 3, 3]
    assert live("b", 5, leaving=True) == 2
    # The third says nothing more.
    assert [live("a", 15), live("a", 17)] == [2, 1]
    assert said("fleet_size", "all", GatewayCountRecord).live_gateway_count == 1


def test_all_hear_of_another_number_and_of_nothing_else(db: None) -> None:
    live("a")
    version = last_version()
    live("a", 5)
    live("a", 10)
    assert last_version() == version
    live("b", 10)
    assert last_version() == version + 1
