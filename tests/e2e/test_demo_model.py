"""The demo model, asked through the front door, knows what it was taught."""

import asyncio

import openai
import pytest

from infra.demo_model.evaluate import ask_all
from infra.demo_model.heldout import QUESTIONS, read_held_out

pytestmark = [pytest.mark.e2e, pytest.mark.full]

RIGHT_MIN = 0.9
SECONDS_MAX = 600


async def test_nine_in_ten_held_out_questions_are_answered_right(stack) -> None:
    wrong: list[str] = []
    async with (
        asyncio.timeout(SECONDS_MAX),
        openai.AsyncOpenAI(base_url=stack.api_base, api_key=stack.api_key) as client,
    ):
        verdicts = await ask_all(client, stack.model, read_held_out(), wrong.append)
    assert len(verdicts) == QUESTIONS
    assert sum(right for _, right in verdicts) >= RIGHT_MIN * QUESTIONS, "\n".join(wrong)
