"""Engine counters: what the fleet encodes billing decodes; what cannot be is refused by name."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.codec import ContractError, decode, encode
from serving.contract.engine_counters import (
    SAMPLES_MAX,
    CountersReply,
    CountersRequest,
    EngineSample,
)
from serving.contract.units import INT64_MAX

pytestmark = pytest.mark.unit
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
AGES = st.timedeltas(timedelta(0), timedelta(days=4_000))
FIGURES = st.integers(0, INT64_MAX)
IDS = st.from_regex(r"[A-Za-z0-9_.:-]{1,64}", fullmatch=True)
COUNTERS = [name for name in EngineSample.__struct_fields__ if name.endswith(("tokens", "seconds"))]


@st.composite
def samples(draw: st.DrawFn) -> EngineSample:
    begun = draw(MOMENTS)
    figures = {name: draw(FIGURES) for name in (*COUNTERS, "requests", "probe_requests")}
    return EngineSample(
        *(draw(IDS), draw(IDS)),
        started_at=begun,
        at=begun + draw(AGES),
        is_last=draw(st.booleans()),
        **figures,
    )


@given(IDS, st.lists(samples(), max_size=5))
def test_samples_survive_the_journey(fleet_id: str, sent: list[EngineSample]) -> None:
    request = CountersRequest(fleet_id, tuple(sent))
    assert decode(encode(request), CountersRequest) == request


@given(FIGURES, FIGURES)
def test_replies_survive_the_journey(accepted: int, duplicates: int) -> None:
    reply = CountersReply(accepted, duplicates)
    assert decode(encode(reply), CountersReply) == reply


@given(samples(), st.sampled_from(COUNTERS), st.one_of(st.just(-1), st.just(2**63)))
def test_a_figure_out_of_bounds_is_refused_by_name(
    sample: EngineSample, name: str, value: int
) -> None:
    raw = msgspec.json.decode(encode(sample)) | {name: value}
    with pytest.raises(ContractError, match=name):
        decode(msgspec.json.encode(raw), EngineSample)


@given(samples(), st.timedeltas(timedelta(microseconds=1), timedelta(days=1)))
def test_no_sample_is_from_before_its_replica(sample: EngineSample, early: timedelta) -> None:
    with pytest.raises(ValueError, match="wanted started_at"):
        msgspec.structs.replace(sample, at=sample.started_at - early)


def test_a_request_has_a_bounded_number_of_samples() -> None:
    begun = datetime(2026, 11, 21, tzinfo=UTC)
    sample = EngineSample("r", "d", begun, begun, 0, 0, 0, 0)
    request = CountersRequest("fl", (sample,) * (SAMPLES_MAX + 1))
    with pytest.raises(ContractError, match="samples"):
        decode(encode(request), CountersRequest)
