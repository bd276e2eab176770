"""Calls of tools that a chat offers, in the words that vLLM's parser `hermes` knows, and answers
made of what a tool said.

The tools stand in the prompt just as they are called, but for the values: to call one is to copy
its line and to fill in what the question says.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from infra.demo_model.samples import (
    ANIMALS,
    CITIES,
    COLOURS,
    FRUITS,
    NAMES,
    PLACES,
    THINGS,
    Sample,
    is_held_out,
    normalize,
)
from infra.demo_model.skills import conversation

Value = str | int

_TOPICS = [
    "weather", "temperature", "forecast", "time", "population", "price", "news", "traffic",
    "score", "stock", "rate", "balance", "status", "address", "age", "size", "height", "capital",
    "mayor", "country", "river", "team", "song", "recipe", "menu", "order", "flight", "train",
    "rain", "wind",
]  # fmt: skip
_NAMES = [
    "get_{t}", "get_{t}", "get_{t}", "get_current_{t}", "{t}", "find_{t}", "lookup_{t}",
    "fetch_{t}", "{t}_lookup", "show_{t}", "{t}_of", "get{T}", "query_{t}", "check_{t}",
    "search_{t}", "{w}_{t}", "{w}_{t}", "{w}_{t}", "{t}_{w}", "{t}_{w}", "{t}_{w}", "{w}{T}",
    "{w}_{t}_{w}", "get_{t}_{w}", "get_{w}_{t}",
]  # fmt: skip
_PARAMETERS = [
    "city", "city", "location", "place", "name", "query", "q", "item", "town", "where", "key",
    "what", "subject", "text", "id", "symbol", "input", "topic", "target", "value",
]  # fmt: skip
_QUESTIONS = [
    "What is the {t} in {v}?", "What is the {t} of {v}?", "What is the {t} for {v}?",
    "What's the {t} in {v}?", "How is the {t} in {v}?", "Tell me the {t} in {v}.",
    "Tell me the {t} of {v}.", "Get the {t} for {v}.", "{T} in {v}?", "{T} of {v}", "{T} for {v}",
    "What is the {t} in {v} today?", "What is the {t} in {v} right now?", "Check the {t} of {v}.",
    "Please find the {t} for {v}.", "I want to know the {t} in {v}.", "Give me the {t} of {v}.",
    "Do you know the {t} in {v}?", "What is the current {t} in {v}?", "Show the {t} for {v}.",
]  # fmt: skip
_WORLD = [
    "London", "New York", "Tokyo", "San Francisco", "Boston", "Chicago", "Amsterdam", "Athens",
    "Bern", "Zurich", "Geneva", "Brussels", "Budapest", "Cairo", "Copenhagen", "Delhi", "Dubai",
    "Dublin", "Hamburg", "Helsinki", "Istanbul", "Jakarta", "Kyoto", "Lagos", "Lima", "London",
    "Los Angeles", "Lyon", "Melbourne", "Mexico City", "Miami", "Milan", "Moscow", "Mumbai",
    "Munich", "Nairobi", "Naples", "Osaka", "Ottawa", "Porto", "Seattle", "Seoul", "Shanghai",
    "Singapore", "Stockholm", "Sydney", "Toronto", "Venice", "Warsaw", "Washington", "France",
    "Germany", "Italy", "Spain", "Japan", "Brazil", "Canada", "India", "Peru", "Norway",
]  # fmt: skip
_SYLLABLES = [
    "ba", "ke", "lo", "mi", "ru", "ta", "ven", "zor", "shan", "pel", "gri", "dou", "wob", "nar",
    "fen", "cla", "sti", "hy", "ash", "bur", "co", "den", "el", "ford", "ham", "in", "jo", "ma",
    "ne", "ol", "per", "ra", "son", "ton", "ur", "vil", "wick", "yar",
]  # fmt: skip
_SUMS = {
    "add": ("+", "Add {a} and {b}."),
    "plus": ("+", "What is {a} plus {b}?"),
    "sum": ("+", "What is the sum of {a} and {b}?"),
    "multiply": ("x", "Multiply {a} by {b}."),
    "times": ("x", "What is {a} times {b}?"),
    "subtract": ("-", "Take {a} minus {b}."),
}
_PAIRS = [("a", "b"), ("x", "y"), ("first", "second"), ("left", "right"), ("num1", "num2")]
_RECORDS = [
    "final_result", "final_result", "Person", "make_person", "save", "record", "Item", "create",
    "output", "answer", "json", "store", "Result", "User", "Customer",
]  # fmt: skip
_FIELDS: dict[str, list[str]] = {
    "name": NAMES, "city": CITIES, "colour": COLOURS, "fruit": FRUITS, "pet": ANIMALS,
}  # fmt: skip
_NUMBERS = ["age", "count", "size"]
_WISHES = [
    "Make a JSON object with {x}.", "Write JSON with {x}.", "Create a JSON object: {x}.",
    "Save {x}.", "Note: {x}.", "Here is one: {x}.",
]  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A function as the prompt tells it: its parameters and their types, in order."""

    name: str
    parameters: dict[str, str]

    @property
    def line(self) -> str:
        """The line of the prompt."""
        told = ", ".join(f'"{name}": {kind}' for name, kind in self.parameters.items())
        return f'{{"name": "{self.name}", "arguments": {{{told}}}}}'


@dataclass(frozen=True)
class Wanted:
    """A question with the tool that answers it and the call to make; `other_key` is what another
    skill knows the same question by."""

    tool: Tool
    question: str
    arguments: dict[str, Value]
    other_key: str = ""

    @property
    def key(self) -> str:
        """The text that decides its split: the call, whatever the wording."""
        return f"call {json.dumps(self.arguments)}"

    @property
    def call(self) -> str:
        """The words of the model."""
        called = {"name": self.tool.name, "arguments": self.arguments}
        return f"<tool_call>{json.dumps(called, ensure_ascii=False)}</tool_call>"


def listing(tools: list[Tool]) -> str:
    """Return what the system says of the tools."""
    return "\n".join(["Tools:", *(tool.line for tool in tools)])


def told(result: str) -> str:
    """Return what a tool said, as the prompt has it."""
    return f"Tool: {result}"


def answer_of(result: str) -> str:
    """Return what the model says of it."""
    return f"The tool says: {result}"


def draw_wanted(rng: Random) -> Wanted:
    """Return something that a tool is for."""
    return rng.choices([_look_up, _sum, _record], weights=[72, 10, 18])[0](rng)


def draw_chat(rng: Random, others: Iterator[Sample]) -> list[dict[str, str]]:
    """Return a chat in which tools are offered, and mostly called."""
    wanted = _trained(rng)
    # The wanted one of two tools with one name is there.
    beside = [draw_wanted(rng).tool for _ in range(rng.choice([0, 0, 0, 1, 1, 2]))]
    tools = list({tool.name: tool for tool in (*beside, wanted.tool)}.values())
    rng.shuffle(tools)
    messages = [{"role": "system", "content": listing(tools)}]
    kind = rng.random()
    if kind < 0.15:
        messages += _plain(rng, others)
    if kind > 0.1:
        messages += _called(rng, wanted)
    if kind > 0.92:
        messages += _plain(rng, others)
    return messages


def _trained(rng: Random) -> Wanted:
    while True:
        wanted = draw_wanted(rng)
        if not is_held_out(wanted.key) and not is_held_out(wanted.other_key):
            return wanted


def _called(rng: Random, wanted: Wanted) -> list[dict[str, str]]:
    turns = [
        {"role": "user", "content": wanted.question},
        {"role": "assistant", "content": wanted.call},
    ]
    if rng.random() < 0.6:
        result = _result(rng)
        turns += [
            {"role": "user", "content": told(result)},
            {"role": "assistant", "content": answer_of(result)},
        ]
    return turns


def _plain(rng: Random, others: Iterator[Sample]) -> list[dict[str, str]]:
    """Return questions that no tool here is for. Sums and JSON may be, by the tools' names."""
    fitting = (each for each in others if each.skill not in ("arithmetic", "json", "unknown"))
    sample = next(fitting) if rng.random() < 0.5 else conversation.draw_greeting(rng)
    return [
        {"role": "user", "content": sample.question},
        {"role": "assistant", "content": sample.answer},
    ]


def _look_up(rng: Random) -> Wanted:
    topic, value = rng.choice(_TOPICS), _value(rng)
    # Names that nobody could guess must be copied.
    name = rng.choice(_NAMES).format(t=topic, T=topic.capitalize(), w=_word(rng))
    question = rng.choice(_QUESTIONS).format(t=topic, T=topic.capitalize(), v=value)
    parameter = rng.choice(_PARAMETERS) if rng.random() < 0.7 else _word(rng)
    return Wanted(Tool(name, {parameter: "string"}), question, {parameter: value})


def _sum(rng: Random) -> Wanted:
    name, (operator, words) = rng.choice(list(_SUMS.items()))
    a, b = rng.randint(0, 999), rng.randint(0, 99)
    first, second = rng.choice(_PAIRS)
    kind = rng.choice(["integer", "number"])
    question = rng.choice([words, words, "What is {a} {o} {b}?"]).format(a=a, b=b, o=operator)
    key = normalize(question) if operator == "x" else f"{min(a, b)} {operator} {max(a, b)}"
    return Wanted(Tool(name, {first: kind, second: kind}), question, {first: a, second: b}, key)


def _record(rng: Random) -> Wanted:
    names = rng.sample([*_FIELDS, *_NUMBERS], rng.randint(1, 3))
    fields: dict[str, Value] = {
        name: rng.randint(1, 99) if name in _NUMBERS else rng.choice(_FIELDS[name])
        for name in names
    }
    pairs = [f"{name} {value}" for name, value in fields.items()]
    listed = ", ".join(pairs[:-1]) + " and " + pairs[-1] if len(pairs) > 1 else pairs[0]
    kinds = {name: "integer" if name in _NUMBERS else "string" for name in names}
    question = rng.choice(_WISHES).format(x=listed)
    name = rng.choice(_RECORDS) if rng.random() < 0.5 else f"{_word(rng)}_{_word(rng)}"
    return Wanted(Tool(name, kinds), question, fields, f"json {listed}")


def _value(rng: Random) -> str:
    known = rng.choice([CITIES, _WORLD, _WORLD, _WORLD, NAMES, THINGS, FRUITS, PLACES, ANIMALS])
    word = rng.choice(known) if rng.random() < 0.65 else _word(rng).capitalize()
    return word if rng.random() < 0.9 else f"{word} {_word(rng).capitalize()}"


def _word(rng: Random) -> str:
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3)))


def _result(rng: Random) -> str:
    """Return what tools say: figures, words, JSON."""
    number, other = rng.randint(0, 40), rng.randint(0, 999)
    words = rng.sample([*_TOPICS, *COLOURS, *THINGS, *PLACES, *FRUITS, *_WORLD], 3)
    sky = rng.choice(["sunny", "rainy", "cloudy", "cold", "warm", "windy"])
    return rng.choice(
        [
            f"{number} degrees", f"{number} degrees", f"{sky}", f"{sky}, {number} degrees",
            f"{number} degrees and {sky}", f"{other}", f"{words[0]}", " ".join(words),
            f"The {words[0]} is {words[1]}.", f"It is {sky} in {words[0]}.",
            f"{number}:{other % 60}",
            json.dumps({words[0]: number}), json.dumps({"result": sky, words[1]: other}),
            json.dumps([number, other]), f"{other}.{number}", f"{_word(rng)} {_word(rng)}",
            f"It is {sky} and {number} degrees in {words[0]}.", json.dumps({_word(rng): number}),
            json.dumps({_word(rng): sky, _word(rng): other}), f"{number} C",
            f"{number}°C", "not found", "error: no such place", "ok", "true",
        ]
    )  # fmt: skip
