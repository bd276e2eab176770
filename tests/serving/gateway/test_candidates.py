"""All ready deployments of a variant take part: one's own first, then whoever has room."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.admission import Place, best, in_order, prefix_of_prompt
from serving.gateway.auth import Principal
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.routes import GENERATING
from serving.pool.pool import Pool
from serving.pool.prefix_history import BLOCK_BYTES, Blocks
from tests.fixtures import catalog

LONG = "A penstock is the gated, metered pipe that feeds a turbine. " * 40


def job(path: str = "/v1/chat/completions", **fields: Any) -> InferenceRequest:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]} | fields
    if path == "/v1/completions":
        del body["messages"]
    data = json.dumps(body).encode()
    dialect = GENERATING[path]
    return dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def principal(name: str = "a") -> Principal:
    tenant = catalog.tenant(name)
    of = tenant.key, tenant.project, tenant.organization
    return Principal(*of, networks=None, cache_salt=f"secret {name}", budget_ids=())


def place(name: str, *slots: int, dedicated_to: str | None = None) -> Place:
    """Return a deployment with replicas of so many slots."""
    deployment = catalog.deployment(dedicated_to=dedicated_to)
    deployment = msgspec.structs.replace(deployment, deployment_id=name)
    pool = Pool(name)
    records = [
        msgspec.structs.replace(
            catalog.replica(f"http://{name}{number}", slots=count),
            deployment_id=name,
            replica_id=f"{name}_{number}",
        )
        for number, count in enumerate(slots)
    ]
    pool.set_replicas({record.replica_id: record for record in records})
    return deployment, pool


def fill(of: Place, part: float) -> None:
    for replica in of[1].replicas.values():
        replica.in_flight = round(replica.share * part)


def name_of(found: Place) -> str:
    return found[0].deployment_id


def test_ones_own_deployment_goes_first_and_the_shared_one_takes_what_it_has_no_room_for() -> None:
    own, shared = place("own", 4, dedicated_to="org_a"), place("shared", 4)
    fill(own, 0.75)
    assert name_of(best([own, shared], job())) == "own"
    assert name_of(best([own, shared], job(n=2))) == "own", "one slot is free"
    fill(own, 1.0)
    assert name_of(best([own, shared], job())) == "shared"


def test_where_none_has_room_the_shorter_wait_is_chosen() -> None:
    own, shared = place("own", 4, dedicated_to="org_a"), place("shared", 4)
    fill(own, 1.0)
    fill(shared, 1.0)
    assert name_of(best([own, shared], job())) == "own"
    fill(own, 2.0)
    assert name_of(best([own, shared], job())) == "shared"


def test_after_where_it_goes_come_the_others_ones_own_first() -> None:
    own, one, other = place("own", 4, dedicated_to="org_a"), place("one", 4), place("other", 4)
    for full in (own, one):
        fill(full, 1.0)
    assert in_order([own, one, other], job()) == (other, own, one)


def test_what_a_grammar_is_compiled_for_goes_where_the_same_engine_has_the_same_weights() -> None:
    home, (alike, alike_pool), (deployment, pool) = place("a", 8), place("b", 4), place("c", 4)
    other = msgspec.structs.replace(deployment, weights="others"), pool
    places = [home, (alike, alike_pool), other]
    fill(home, 0.0)
    fill(other, 0.5)
    fill((alike, alike_pool), 0.5)
    schema = {"name": "s", "schema": {"type": "object"}}
    asked = job(response_format={"type": "json_schema", "json_schema": schema})
    assert in_order(places, asked) == (home, (alike, alike_pool))
    assert in_order(places, job()) == tuple(places)


def test_short_prompts_go_where_there_is_most_room_for_its_slots() -> None:
    small, large = place("small", 2), place("large", 8, 8)
    fill(small, 0.5)
    fill(large, 0.25)
    assert name_of(best([small, large], job())) == "large"
    fill(large, 0.75)
    assert name_of(best([small, large], job())) == "small"


def test_prompts_are_spread_over_deployments_by_slots_and_come_back() -> None:
    places = [place("small", 8), place("large", 8, 16)]
    taken: Counter[str] = Counter()
    for number in range(600):
        asked = job(prompt=f"{number} {LONG}", path="/v1/completions")
        prefix = prefix_of_prompt(principal(), asked, [pool for _, pool in places])
        assert prefix is not None
        assert len(prefix.blocks) == len(asked.engine_request.fields[0]) // BLOCK_BYTES
        found = best(places, asked, prefix)
        assert best(places[::-1], asked, prefix) == found
        taken[name_of(found)] += 1
    assert 110 < taken["small"] < 190


@pytest.mark.parametrize("slots", [(), (4,), (4, 4)])
def test_nothing_is_hashed_where_there_is_no_choice(slots: tuple[int, ...]) -> None:
    _, pool = place("any", *slots)
    asked = job(messages=[{"role": "user", "content": LONG}])
    assert (prefix_of_prompt(principal(), asked, [pool]) is not None) == (len(slots) > 1)
    pool.has_prefix_cache = False
    assert prefix_of_prompt(principal(), asked, [pool]) is None


def blocks_of_job(who: Principal, asked: InferenceRequest, where: Pool) -> Blocks:
    prefix = prefix_of_prompt(who, asked, [where])
    return () if prefix is None else prefix.blocks


def test_organizations_and_models_share_no_block() -> None:
    _, pool = place("any", 4, 4)
    asked = job(messages=[{"role": "user", "content": LONG}])
    other = msgspec.structs.replace(asked, model=catalog.model("var_other"))
    chains = [
        blocks_of_job(principal("a"), asked, pool),
        blocks_of_job(principal("b"), asked, pool),
        blocks_of_job(principal("a"), other, pool),
    ]
    assert len(set().union(*chains)) == sum(map(len, chains))


ROLES = ("user", "assistant")
TOOL = {"type": "function", "function": {"name": "f", "description": LONG}}


@given(
    st.lists(st.text(max_size=400), min_size=1, max_size=6),
    st.floats(0.0, 2.0),
    st.sampled_from(([], [TOOL])),
)
def test_a_turn_begins_as_the_one_before_whatever_else_it_asks(
    said: list[str], temperature: float, tools: list[Any]
) -> None:
    _, pool = place("any", 4, 4)
    messages = [
        {"role": ROLES[turn % 2], "content": f"{LONG[:600]} {text}"}
        for turn, text in enumerate(said)
    ]
    more: dict[str, Any] = {"tools": tools} if tools else {}
    before = job(messages=messages, temperature=temperature, **more)
    later = job(messages=[*messages, {"role": "user", "content": LONG}], stream=True, **more)
    one, another = (blocks_of_job(principal(), each, pool) for each in (before, later))
    common = _common(before.engine_request.fields[0], later.engine_request.fields[0])
    assert common >= sum(len(text) + 600 for text in said)
    assert one[: common // BLOCK_BYTES] == another[: common // BLOCK_BYTES]


def _common(one: bytes, another: bytes) -> int:
    pairs = enumerate(zip(one, another, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(another)))
