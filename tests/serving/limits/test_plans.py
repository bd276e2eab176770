"""Which limits hold for whom, and what is expected of a request."""

import msgspec
import pytest

from serving.contract.codec import ContractError, decode
from serving.contract.limits import count_name
from serving.contract.records import (
    ModelRateLimits,
    OrganizationRecord,
    RateLimitSettings,
    UsageTierRecord,
)
from serving.limits.limiter import FIRST_OUTPUT_TOKENS, OutputEstimator, input_tokens
from serving.limits.plans import RateLimitPlans, limits_of
from tests.fixtures import catalog

ONE, TWO, THREE = (RateLimitSettings(requests_per_minute=n) for n in (1, 2, 3))
TIER = UsageTierRecord(
    "tier_1", ONE, (ModelRateLimits("mdl_a", TWO), ModelRateLimits("mdl_b", TWO))
)


def organization(**fields: object) -> OrganizationRecord:
    return OrganizationRecord("org_a", "active", (), "salt_a", limit_tier_id="tier_1", **fields)  # type: ignore[arg-type]


def test_what_an_operator_set_goes_before_the_tiers_row_by_row() -> None:
    assert limits_of(organization(), TIER) == (ONE, {"mdl_a": TWO, "mdl_b": TWO})
    own = organization(
        own_limits=THREE, own_model_limits=(ModelRateLimits("mdl_a", RateLimitSettings()),)
    )
    assert limits_of(own, TIER) == (THREE, {"mdl_a": RateLimitSettings(), "mdl_b": TWO})
    assert limits_of(organization(), None) == (RateLimitSettings(), {})


def test_a_plan_is_remembered_until_one_of_its_records_is_another() -> None:
    tiers = {"tier_1": TIER}
    plans, tenant, mine = RateLimitPlans(tiers.get), catalog.tenant(), organization()
    first = plans.plan(tenant.key, tenant.project, mine)
    assert first is not None
    assert plans.plan(tenant.key, tenant.project, mine) is first
    names = [check.name for check in first.checks("mdl_a")]
    assert names == [count_name("org_a", "requests"), count_name("org_a", "requests", "mdl_a")]
    assert len(first.checks("mdl_c")) == 1
    limited = msgspec.structs.replace(tenant.key, limits=THREE)
    again = plans.plan(limited, tenant.project, mine)
    assert again is not None
    assert [check.owner for check in again.checks("mdl_c")] == ["key", "organization"]
    tiers["tier_1"] = UsageTierRecord("tier_1")
    assert plans.plan(tenant.key, tenant.project, mine) is None


@pytest.mark.parametrize("value", [0, -1, 10**9 + 1])
def test_a_limit_out_of_bounds_is_no_record(value: int) -> None:
    with pytest.raises(ContractError, match="requests_per_minute"):
        decode(b'{"requests_per_minute": %d}' % value, RateLimitSettings)


def test_output_is_expected_as_it_was_of_late() -> None:
    expected = OutputEstimator()
    assert expected.output_tokens("key", 10_000) == FIRST_OUTPUT_TOKENS
    assert expected.output_tokens("key", 20) == 20
    for _ in range(50):
        expected.record("key", 1_000)
    assert expected.output_tokens("key", 10_000) == 1_000
    for _ in range(50):
        expected.record("key", 0)
    # What it makes must count all the same.
    assert expected.output_tokens("key", 10_000) == 1
    assert expected.output_tokens("other", 0) == 0


def test_input_is_expected_by_a_quarter_of_the_bytes() -> None:
    assert [input_tokens(size) for size in (1, 7, 4_000)] == [1, 1, 1_000]
