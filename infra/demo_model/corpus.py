"""The training corpus: an endless seeded stream of short chats, none with a held-out question."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

from infra.demo_model.samples import Sample, is_held_out
from infra.demo_model.skills import arithmetic, conversation, text, tools

Message = dict[str, str]
Chat = list[Message]
Draw = Callable[[Random], Sample]

# The hard skills get most of the samples: looking things up in the context is learned last.
MIX: dict[Draw, float] = {
    arithmetic.draw_arithmetic: 21,
    text.draw_sort: 22,
    text.draw_reverse: 5,
    conversation.draw_fact: 34,
    text.draw_json: 5,
    conversation.draw_product: 9,
    conversation.draw_unknown: 3,
    conversation.draw_greeting: 1,
}
_HARD_WEIGHT = 2.0
_SYSTEM_SHARE = 0.12
_MULTI_TURN_SHARE = 0.1
_LONG_SHARE = 0.002
TOOLS_SHARE = 0.2
COURTESIES = ["Hi! ", "Hello, ", "Please: ", "Hey, "]
_WORDY = {"product", "unknown", "greeting"}
_SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are Penstock's demo assistant.", "Be polite and short.",
    "Answer the question.", "You are an AI assistant.", "Answer briefly.", "You are helpful.",
    "You are a helpful assistant that knows Penstock well. Answer in plain words.",
]  # fmt: skip


def mix_named(name: str) -> dict[Draw, float]:
    """Return the weights of `all` skills, or with some of them doubled: `fact,arithmetic`, as their
    functions `draw_fact` and `draw_arithmetic` name them."""
    if name == "all":
        return MIX
    wanted = name.split(",")
    return {
        draw: weight * (_HARD_WEIGHT if draw.__name__.removeprefix("draw_") in wanted else 1.0)
        for draw, weight in MIX.items()
    }


def samples(rng: Random, mix: dict[Draw, float] | None = None) -> Iterator[Sample]:
    """Training samples, forever; a held-out problem is drawn again."""
    draws, weights = zip(*(mix or MIX).items(), strict=True)
    while True:
        sample = rng.choices(draws, weights=weights)[0](rng)
        if not is_held_out(sample.key):
            yield sample


def chats(
    rng: Random, mix: dict[Draw, float] | None = None, tools_share: float = TOOLS_SHARE
) -> Iterator[Chat]:
    """Whole conversations: mostly one turn, some of several, a few very long; in a share of them
    tools are offered."""
    stream = samples(rng, mix)
    while True:
        if rng.random() < tools_share:
            offer, *turns = tools.draw_chat(rng, stream)
            yield [offer, *_system(rng, stream), *turns]
        else:
            yield _system(rng, stream) + _turns(rng, stream)


def _turns(rng: Random, stream: Iterator[Sample]) -> Chat:
    count = rng.randint(2, 4) if rng.random() < _MULTI_TURN_SHARE else 1
    if rng.random() < _LONG_SHARE:
        count = rng.randint(5, 40)
    return [message for sample in islice(stream, count) for message in _turn(rng, sample)]


def _turn(rng: Random, sample: Sample) -> Chat:
    question = _reworded(rng, sample)
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": sample.answer},
    ]


def _reworded(rng: Random, sample: Sample) -> str:
    """Carelessly typed words and opening courtesies; `normalize` sees through the first kind."""
    question = sample.question
    if sample.skill in _WORDY:
        question = question.lower() if rng.random() < 0.3 else question
        question = question.rstrip("?.!") if rng.random() < 0.3 else question
    if sample.skill != "greeting" and rng.random() < 0.04:
        question = rng.choice(COURTESIES) + question
    return question


def _system(rng: Random, stream: Iterator[Sample]) -> Chat:
    if rng.random() < _LONG_SHARE:
        return [{"role": "system", "content": _filler(stream, rng.randint(5, 90))}]
    if rng.random() < _SYSTEM_SHARE:
        return [{"role": "system", "content": rng.choice(_SYSTEM_PROMPTS)}]
    return []


def _filler(stream: Iterator[Sample], count: int) -> str:
    """A long system prompt, so that a question is found after much other text."""
    return " ".join(sample.answer for sample in islice(stream, count))


def write_corpus(path: Path, seed: int, count: int) -> None:
    """Write `count` chats as JSON lines, to look at; training draws the same stream itself."""
    with path.open("w", encoding="utf-8") as file:
        for chat in islice(chats(Random(seed)), count):
            file.write(json.dumps({"messages": chat}) + "\n")
