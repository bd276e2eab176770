"""Contract records: what is encoded is decoded; what is bad is named."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.api_key import BASE62, digest, is_well_formed, make_secret
from serving.contract.codec import ContractError, decode, encode
from serving.contract.ids import uuid7
from serving.contract.lease import LeaseDenial, LeaseGrant, LeaseReply
from serving.contract.records import DeploymentRecord, DeploymentTimeouts, ModelRecord, PriceRecord
from serving.contract.usage import LeaseCharge, UsageEvent
from tests.fixtures import catalog

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TOKENS = st.integers(0, 10**6)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
PRICES = st.builds(
    PriceRecord,
    price_id=st.just("price"),
    variant_id=st.just("var"),
    tier=st.sampled_from(["priority", "default", "flex", "batch"]),
    input_nanos=st.integers(0, 10**12),
    cached_input_nanos=st.integers(0, 10**12),
    output_nanos=st.integers(0, 10**12),
    effective_at=MOMENTS,
    input_tokens_min=TOKENS,
)
TENANT = catalog.tenant()
RECORDS = [
    TENANT.organization,
    TENANT.project,
    TENANT.key,
    catalog.model(),
    catalog.price(),
    catalog.contract_price(ends_at=NOW),
    catalog.deployment(),
    catalog.replica("http://127.0.0.1:1"),
    LeaseReply(
        "lineage",
        (
            LeaseGrant("a", "b", "l", 5, NOW, NOW, NOW),
            LeaseDenial("a", "b", "key_budget_exceeded", 0, True),
        ),
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_the_journey(record: msgspec.Struct) -> None:
    assert decode(encode(record), type(record)) == record


@given(PRICES)
def test_prices_survive_the_journey(price: PriceRecord) -> None:
    assert decode(encode(price), PriceRecord) == price


@given(st.builds(LeaseCharge, st.just("b"), st.just("l"), st.integers(0, 2**63 - 1)), TOKENS)
def test_events_survive_the_journey(charge: LeaseCharge, tokens: int) -> None:
    event = UsageEvent(
        *("e", "gw", "org", "proj", "key", "mdl", "var", "dep", "price", "chat"),
        tier="default",
        outcome="completed",
        received_at=NOW,
        charges=(charge,),
        input_tokens=tokens,
        cached_input_tokens=tokens // 2,
    )
    assert decode(encode(event), UsageEvent) == event


@pytest.mark.parametrize(
    ("field", "value"),
    [("output_tokens_max", 0), ("output_tokens_max", 513), ("context_tokens", -1)],
)
def test_a_bad_record_is_refused_by_the_name_of_its_field(field: str, value: int) -> None:
    raw = msgspec.json.decode(encode(catalog.model()))
    with pytest.raises(ContractError, match=field):
        decode(msgspec.json.encode(raw | {field: value}), ModelRecord)


@pytest.mark.parametrize("record", [catalog.price(), catalog.contract_price()])
def test_a_price_of_an_older_control_plane_is_of_the_default_tier(record: PriceRecord) -> None:
    raw = msgspec.json.decode(encode(record)) | {"tier": "standard"}
    assert decode(msgspec.json.encode(raw), type(record)) == record


@pytest.mark.parametrize(
    "fields",
    [{"timeouts": {"wake_seconds": 0.0}}, {"engine": "external"}, {"sleep_after_seconds": -1.0}],
)
def test_what_nobody_would_wake_may_not_sleep(fields: dict[str, object]) -> None:
    record = catalog.deployment(
        timeouts=DeploymentTimeouts(wake_seconds=9.0), sleep_after_seconds=60.0
    )
    raw = msgspec.json.decode(encode(record))
    assert decode(encode(record), DeploymentRecord).may_sleep
    with pytest.raises(ContractError, match="sleep_after_seconds"):
        decode(msgspec.json.encode(raw | fields), DeploymentRecord)


def test_a_deployment_of_an_older_control_plane_never_sleeps() -> None:
    raw = msgspec.json.decode(encode(catalog.deployment()))
    del raw["sleep_after_seconds"]
    assert not decode(msgspec.json.encode(raw), DeploymentRecord).may_sleep


def test_keys_stay_what_they_are() -> None:
    secret = "pen_live_sOmuQ2GzWVPworJzUMbvwDW8I8m6dp3XTkqn"
    assert is_well_formed(secret)
    assert digest(secret, b"pepper").startswith("c81c68ba050233496d596025ebd2d7e4")
    assert is_well_formed("pen_live_8aspm4G7VmSUfOoD6V1vrORcmn0iSH0aurL0")


@given(st.randoms())
def test_one_wrong_letter_is_noticed_without_a_look_up(random: st.DataObject) -> None:
    secret = make_secret(random.choice)  # type: ignore[attr-defined]
    assert is_well_formed(secret)
    place = random.randrange(9, len(secret))  # type: ignore[attr-defined]
    other = next(letter for letter in BASE62 if letter != secret[place])
    assert not is_well_formed(secret[:place] + other + secret[place + 1 :])


@given(st.integers(0, 2**48 - 2), st.integers(0, 2**74 - 1), st.integers(0, 2**74 - 1))
def test_ids_sort_by_the_time_they_were_made(at_ms: int, first: int, second: int) -> None:
    early, late = uuid7(at_ms=at_ms, random_bits=first), uuid7(at_ms=at_ms + 1, random_bits=second)
    assert early < late
    parsed = UUID(early)
    assert str(parsed) == early
    assert (parsed.version, parsed.variant) == (7, "specified in RFC 4122")
