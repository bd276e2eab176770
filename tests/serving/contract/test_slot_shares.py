"""What gateways have to do, and what they may take: as it is said, and what is not taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.codec import ContractError, decode, encode
from serving.contract.slot_shares import (
    ORGANIZATIONS_MAX,
    DemandReport,
    DeploymentDemand,
    EngineLoad,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.contract.units import TIERS

IDS = st.text("abcXYZ019_.:-", min_size=1, max_size=64)
COUNTS = st.integers(0, 10**9)
DEMANDS = st.builds(
    DeploymentDemand,
    st.dictionaries(IDS, st.builds(ReplicaUsage, COUNTS, COUNTS), max_size=4),
    st.dictionaries(
        st.sampled_from(TIERS),
        st.dictionaries(
            IDS,
            st.builds(OrganizationDemand, st.integers(1, 10**9), COUNTS, COUNTS, st.booleans()),
            max_size=4,
        ),
    ),
)
REPORTS = st.builds(
    DemandReport,
    IDS,
    st.integers(0, 2**63 - 1),
    st.dictionaries(IDS, DEMANDS, max_size=3),
    st.booleans(),
    st.text(max_size=64),
)
REPLIES = st.builds(
    SlotSharesReply,
    st.integers(0, 2**63 - 1),
    st.dictionaries(IDS, COUNTS),
    st.dictionaries(IDS, st.dictionaries(IDS, st.floats(0, 1), max_size=3), max_size=3),
    COUNTS,
    st.dictionaries(IDS, st.builds(EngineLoad, COUNTS, st.floats(0, 1)), max_size=3),
    st.dictionaries(IDS, st.dictionaries(st.sampled_from(TIERS), st.floats(0, 1)), max_size=3),
    st.dictionaries(st.sampled_from(TIERS), st.floats(0, 1)),
)


@given(REPORTS)
def test_a_report_arrives_as_it_left(report: DemandReport) -> None:
    assert decode(encode(report), DemandReport) == report


def test_organizations_of_which_older_gateways_say_nothing_pay() -> None:
    assert decode(b"[3,1,2]", OrganizationDemand) == OrganizationDemand(3, 1, 2, is_paying=True)


@given(REPLIES)
def test_a_reply_arrives_as_it_left(reply: SlotSharesReply) -> None:
    assert decode(encode(reply), SlotSharesReply) == reply


@given(COUNTS, COUNTS, st.floats(0, 1), st.floats(0, 1))
def test_who_waits_for_room_tells_more_than_a_cache_in_use(
    less: int, more: int, use: float, other_use: float
) -> None:
    less, more = sorted((less, more))
    if less < more:
        assert EngineLoad(less, use).total <= EngineLoad(more, other_use).total
    else:
        assert (EngineLoad(less, use).total <= EngineLoad(more, other_use).total) or use > other_use


@pytest.mark.parametrize("strain", [EngineLoad(-1, 0.0), EngineLoad(0, -0.1), EngineLoad(0, 1.1)])
def test_an_engine_is_no_fuller_than_full(strain: EngineLoad) -> None:
    with pytest.raises(ContractError):
        decode(encode(SlotSharesReply(1, {}, strains={"rep": strain})), SlotSharesReply)


def test_a_fleet_that_tells_nothing_of_engines_is_understood() -> None:
    assert decode(b'{"epoch":1,"shares":{"rep":3}}', SlotSharesReply).strains == {}


@pytest.mark.parametrize(
    "demand",
    [
        DeploymentDemand({"rep": ReplicaUsage(-1, 0)}),
        DeploymentDemand({"rep": ReplicaUsage(0, -1)}),
        DeploymentDemand({"": ReplicaUsage(0, 0)}),
        DeploymentDemand({}, {"urgent": {}}),  # type: ignore[dict-item]
        DeploymentDemand({}, {"default": {"org": OrganizationDemand(0, 1, 1)}}),
        DeploymentDemand({}, {"default": {"org": OrganizationDemand(1, 1, -1)}}),
        DeploymentDemand(
            {},
            {
                "default": {
                    f"org_{number}": OrganizationDemand(1, 0, 1)
                    for number in range(ORGANIZATIONS_MAX + 1)
                }
            },
        ),
    ],
)
def test_what_makes_no_sense_is_refused(demand: DeploymentDemand) -> None:
    with pytest.raises(ContractError):
        decode(encode(DemandReport("gw", 1, {"dep": demand})), DemandReport)
