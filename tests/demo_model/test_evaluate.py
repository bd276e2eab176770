"""The evaluation against a stand-in endpoint that answers from a table."""

import json
from datetime import UTC, datetime

import httpx
import pytest
from openai import AsyncOpenAI

from infra.demo_model import evaluate
from infra.demo_model.evaluate import Target, ask_all, record_speed
from infra.demo_model.heldout import read_held_out

pytestmark = pytest.mark.unit
RECORDS = read_held_out()[:14]


def client_answering(answer_of):
    def reply(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert body["temperature"] == 0
        message = {"role": "assistant", "content": answer_of[body["messages"][-1]["content"]]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        common = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx.Response(200, json={**common, "choices": [choice]})

    http_client = httpx.AsyncClient(transport=httpx.MockTransport(reply))
    return AsyncOpenAI(base_url="http://test/v1", api_key="k", http_client=http_client)


async def test_right_answers_count_and_wrong_ones_are_told() -> None:
    answers = {r["messages"][-1]["content"]: r["expected"] for r in RECORDS}
    answers[RECORDS[3]["messages"][-1]["content"]] = "nonsense"
    told: list[str] = []
    async with client_answering(answers) as client:
        verdicts = await ask_all(client, "m", RECORDS, told.append)
    assert [right for _, right in verdicts] == [n != 3 for n in range(len(RECORDS))]
    assert len(told) == 1
    assert told[0].startswith(RECORDS[3]["id"])


def test_command_names_what_was_asked(tmp_path) -> None:
    target = Target("http://h/v1", "k", "m", "int8", tmp_path, "http://e/v1")
    assert evaluate.command(target) == (
        "python -m infra.demo_model evaluate --variant int8 --model m "
        "--base-url http://h/v1 --engine-url http://e/v1"
    )


def test_record_speed_keeps_the_best_round(tmp_path) -> None:
    (tmp_path / "quality.json").write_text('{"variant": "bf16"}')
    record_speed(tmp_path, [10.2, 30.6, 20.0], datetime(2026, 1, 2, tzinfo=UTC))
    report = json.loads((tmp_path / "quality.json").read_text())
    assert report["output_tokens_per_second"] == 31
    assert report["measured_at"] == "2026-01-02T00:00:00+00:00"
