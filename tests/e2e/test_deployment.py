"""A variant is started, put to sleep and stopped by forms of the admin; nothing is restarted for
it."""

from collections.abc import Iterator

import openai
import pytest

from tests.fixtures.operator import Operator, at_the_admin
from tests.fixtures.stack import LOAD_SECONDS_MAX, Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

STOP_SECONDS_MAX = 180
SLEEP_AFTER_SECONDS = 20.0
"""It must not sleep again while the form is sent that lets it sleep no more."""
LONG_ANSWER_TOKENS = 1_500


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.api_base, api_key=stack.api_key, max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, model: str) -> str:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is Penstock?"}],
        max_tokens=40,
        temperature=0,
    )
    return answer.choices[0].message.content


def refusal(client: openai.OpenAI, model: str) -> tuple[int, str] | None:
    """Return the status and the code with which a model is refused; None when it answers."""
    try:
        ask(client, model)
    except openai.APIStatusError as error:
        return error.status_code, error.code
    return None


def offered(client: openai.OpenAI) -> list[str]:
    return [model.id for model in client.models.list()]


def long_stream(client: openai.OpenAI, model: str) -> Iterator[str | None]:
    """Begin a long answer; return what remains of it, as the reasons to finish of its chunks."""
    chunks = client.completions.create(
        model=model,
        prompt="Penstock",
        max_tokens=LONG_ANSWER_TOKENS,
        extra_body={"ignore_eos": True},
        stream=True,
    )
    next(chunks)
    return (chunk.choices[0].finish_reason for chunk in chunks if chunk.choices)


def sleeps_and_wakes(client: openai.OpenAI, operator: Operator, variant: str) -> None:
    """Leave a variant alone until its engine has stopped; the next request has it started, and is
    answered."""
    operator.let_sleep(variant, after_seconds=SLEEP_AFTER_SECONDS, wake_seconds=LOAD_SECONDS_MAX)
    wait_until(
        lambda: set(operator.live_replicas(variant).split(", ")) == {"1 stopped", "1 asleep"},
        seconds=STOP_SECONDS_MAX,
        what=f"{variant} sleeps",
        every_seconds=0.5,
    )
    assert variant in offered(client)
    assert "Penstock" in ask(client, variant)
    operator.let_sleep(variant, after_seconds=0.0, wake_seconds=0.0)
    assert set(operator.live_replicas(variant).split(", ")) == {"1 stopped", "1 ready"}


def test_a_variant_is_started_and_stopped_by_the_admin_alone(
    stack: Stack, client: openai.OpenAI
) -> None:
    variant = f"{stack.model}:int8"
    pids = {name: stack.living_pid(name) for name in ("gateway", "fleet", "control", "engine")}
    assert variant not in offered(client)
    assert refusal(client, variant) == (503, "model_unavailable")

    with at_the_admin(stack) as operator:
        operator.set_replicas(variant, 1)
        wait_until(
            lambda: refusal(client, variant) is None,
            seconds=LOAD_SECONDS_MAX,
            what=f"the gateway serves {variant}",
            every_seconds=0.5,
        )
        assert variant in offered(client)
        assert "Penstock" in ask(client, variant)
        assert operator.live_replicas(variant) == "1 ready"
        sleeps_and_wakes(client, operator, variant)

        running = long_stream(client, variant)
        operator.set_replicas(variant, 0)
        wait_until(
            lambda: refusal(client, variant) == (503, "model_unavailable"),
            seconds=60,
            what=f"the gateway sends {variant} nothing more",
        )
        assert list(running)[-1] == "length"
        wait_until(
            lambda: operator.live_replicas(variant) == "2 stopped",
            seconds=STOP_SECONDS_MAX,
            what="the replica is stopped",
        )
    assert variant not in offered(client)
    assert refusal(client, stack.model) is None
    assert pids == {name: stack.living_pid(name) for name in pids}
