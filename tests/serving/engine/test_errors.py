"""What vLLM 0.32 says of requests that it minds, and what is read of it."""

import pytest

from serving.engine.errors import PromptLength, rejection_of

LIMIT = "This model's maximum context length is 512 tokens. However, "


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("your prompt contains 513 input tokens, which exceeds", PromptLength(513, is_least=False)),
        ("your prompt contains at least 513 input tokens,", PromptLength(513, is_least=True)),
        ("you requested 9 output tokens and your prompt contains 510 input tokens",
         PromptLength(510, is_least=False)),
        ("your prompt contains 90000 characters (more than 80000 characters", None),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_measured(words: str, size: PromptLength | None) -> None:
    refusal = rejection_of(LIMIT + words)
    assert (refusal.reason, refusal.prompt) == ("context", size)


def test_an_input_length_is_a_measure_too() -> None:
    words = "Input length (600) exceeds model's maximum context length (512)."
    assert rejection_of(words).prompt == PromptLength(600, is_least=False)


def test_min_tokens_that_the_prompt_leaves_no_room_for_are_named() -> None:
    words = "min_tokens must be less than or equal to max_tokens=100, got 2000."
    assert rejection_of(words).reason == "min_tokens"


def test_other_refusals_have_no_numbers() -> None:
    assert rejection_of("Grammar error: contains 9 input tokens").prompt is None
