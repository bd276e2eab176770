"""vLLM's own library judges grammars ahead, and its verdicts are vLLM's."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.vllm import VllmAdapter
from serving.fleet.grammar_service import GrammarService
from tests.fixtures.catalog import deployment
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.vllm]

WEIGHTS = Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16"

HARD = {"type": "string", "pattern": "a{40000}"}
"""Over a minute for xgrammar 0.2.8 on a fast processor, though it is short: the time grows with the
square of the count. Our own bounds refuse it before anybody compiles."""


async def judged(of: GrammarService, record: DeploymentRecord, *schemas: Any) -> GrammarVerdict:
    texts = tuple(json.dumps(schema) for schema in schemas)
    return await of.judge(GrammarQuestion("org_a", record.deployment_id, texts), record)


async def test_vllms_library_judges_with_the_models_tokenizer() -> None:
    record = msgspec.structs.replace(deployment(), engine="vllm", weights=str(WEIGHTS))
    made = GrammarService({"vllm": VllmAdapter("cpu")}, judges_max=1)
    try:
        assert (await judged(made, record, {})).verdict == "unknown"
        await eventually(lambda: made._judges, seconds=120)
        object_ = {"type": "object", "properties": {"a": {"type": "string"}}}
        assert await judged(made, record, object_) == GrammarVerdict("good")
        nothing = {"properties": {"a": False}, "required": ["a"]}
        assert await judged(made, record, object_, nothing) == GrammarVerdict("refused", 1)
        first, second = await asyncio.gather(
            judged(made, record, HARD), judged(made, record, object_ | {"title": "a"})
        )
        assert first.verdict in ("too_complex", "unknown")
        assert second.verdict in ("good", "busy")
        assert await judged(made, record, object_ | {"title": "b"}) == GrammarVerdict("good")
    finally:
        await made.close()
