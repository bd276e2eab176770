"""First requests of agents as they sent them, long texts cut, are taken whole; `make clients` tries
the agents themselves."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from tests.fixtures import catalog
from tests.fixtures.engine_requests import told_to_vllm

RECORDED = Path(__file__).parent / "recorded"
AGENTS = {"claude_code": MessagesDialect(), "codex": ResponsesDialect()}
NAMES = {
    "claude_code": {"Read", "Bash", "Workflow"},
    "codex": {"exec_command", "multi_agent_v1.spawn_agent"},
}


@pytest.mark.parametrize("agent", AGENTS)
def test_the_first_request_of_an_agent_is_taken(agent: str) -> None:
    dialect: Any = AGENTS[agent]
    data = (RECORDED / f"{agent}.json").read_bytes()
    record = msgspec.structs.replace(
        catalog.model(), context_tokens=200_000, output_tokens_max=64_000
    )
    job = dialect.inference(dialect.decode(data), body_bytes=len(data), model=record)
    told = told_to_vllm(job)
    assert NAMES[agent] <= {tool["function"]["name"] for tool in told["tools"]}
    assert {message["role"] for message in told["messages"]} == {"system", "user"}
    omitted = dict(job.echo.headers) if agent == "codex" else {}
    assert list(omitted.values()) == ([b"web_search"] if agent == "codex" else [])
