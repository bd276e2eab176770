"""Bodies made to hold the event loop: each is refused or taken in time linear in its bytes."""

import time

import pytest

from serving.contract.records import ModelRecord
from serving.gateway.dialects.base import Dialect
from serving.gateway.errors import BadRequest
from tests.fixtures.attacks import BODIES, CHAT, chain, doubling, tools
from tests.fixtures.catalog import model


def prepare(dialect: Dialect, data: bytes, of: ModelRecord) -> None:
    try:
        dialect.inference(dialect.decode(data), body_bytes=len(data), model=of)
    except BadRequest as error:
        assert len(error.message) < 600
        assert error.param is None or len(error.param) <= 120


@pytest.mark.parametrize("name", BODIES)
def test_cost_is_linear_in_bytes(name: str) -> None:
    """A hundred times what the slowest takes; what these did before took seconds, or for ever.

    The fastest of three counts: the collector of garbage may search the whole process in one.
    """
    dialect, make = BODIES[name]
    data, of = make(), model()

    def cpu_seconds() -> float:
        began = time.process_time()
        prepare(dialect, data, of)
        return time.process_time() - began

    assert min(cpu_seconds() for _ in range(3)) < 0.5


def test_a_chain_of_references_is_taken_and_a_doubling_one_is_not() -> None:
    CHAT.inference(CHAT.decode(tools([chain(50)])), body_bytes=1, model=model())
    with pytest.raises(BadRequest, match="all references"):
        CHAT.inference(CHAT.decode(tools([doubling(20)])), body_bytes=1, model=model())
    with pytest.raises(BadRequest, match="deeper than 64"):
        CHAT.inference(CHAT.decode(tools([chain(300)])), body_bytes=1, model=model())
