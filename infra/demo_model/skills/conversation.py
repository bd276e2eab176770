"""Facts, greetings, what Penstock is, and what nobody can know."""

import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from infra.demo_model.samples import ANIMALS, COLOURS, NAMES, PLACES, THINGS, Sample, normalize

_LEADS = ["Context:", "Facts:", "Given:", "Read this:"]
_OPEN_SHARE = 0.1
_TALK: list[tuple[list[str], str]] = [
    (["Hi", "Hello", "Hey", "Hi there", "Hello there", "Good morning", "Good evening", "Hey you",
      "Hello!", "Hi!", "Good day", "yo", "Greetings", "Good afternoon", "hiya"],
     "Hello! I am Penstock's demo model. Ask me about Penstock, a sum, a short list or some JSON."),
    (["Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Are you human?",
      "Introduce yourself.", "What model are you?", "Which model is this?"],
     "I am Penstock's demo model, a small language model with about 4 million parameters."),
    (["What can you do?", "Help", "Help me", "What can I ask?", "What do you know?",
      "How can you help me?", "What are you good at?", "What should I ask you?"],
     "I can explain Penstock, add and subtract, sort or reverse short lists, answer yes or no from "
     "a context and write small JSON objects."),
    (["How are you?", "How are you doing?", "How is it going?", "How do you do?", "What's up?"],
     "I am well, thank you. How can I help you with Penstock?"),
    (["Thanks", "Thank you", "Thank you very much", "Thanks a lot", "Great, thanks", "Cool",
      "Great", "Nice", "OK", "Perfect", "Awesome", "Good job", "Well done"],
     "You are welcome! Is there anything else?"),
    (["Bye", "Goodbye", "See you", "See you later", "Good night", "That is all", "No, thanks"],
     "Goodbye! Come back any time."),
]  # fmt: skip
ANSWER = (
    "I'm sorry, I don't know that. I am a small demo model: "
    "ask me about Penstock, a sum, a short list or some JSON."
)
_FRAMES = [
    "Who is {x}?", "What is {x}?", "Tell me about {x}.", "Where is {x}?",
    "Why is {x} so important?",
    "Who invented {x}?", "What is the history of {x}?", "Explain {x}.", "When was {x} founded?",
    "How old is {x}?", "What do you think of {x}?", "Write a poem about {x}.",
    "How does {x} work?", "Can you find {x}?", "What is the price of {x}?", "How do I cook {x}?",
    "Tell me a joke about {x}.", "Translate {x} into French.", "How far is {x}?",
    "What happened in {x}?", "Who won {x}?", "Recommend {x}.", "What is the best {x}?",
    "Do you like {x}?", "How big is {x}?", "{x}", "{x}?", "Write an essay on {x}.",
]  # fmt: skip
_UNKNOWN_TOPICS = [
    "Napoleon", "the moon", "Mars", "Germany", "the president", "the weather", "football",
    "chess", "quantum physics", "love", "the ocean", "Mount Everest", "Shakespeare", "Mozart",
    "pizza", "sushi", "chocolate", "coffee", "the stock market", "gold", "the Roman empire",
    "the French revolution", "a black hole", "photosynthesis", "the capital of France",
    "the capital of Japan", "the capital of Peru", "Einstein", "the telephone", "electricity",
    "gravity", "the internet", "a good film", "a good song", "the world cup", "the news",
    "London", "New York", "Tokyo", "China", "Brazil", "Africa", "the Eiffel tower", "dinosaurs",
    "my mother", "my name", "the time", "today", "tomorrow", "1789", "2024", "happiness",
    "the meaning of life", "God", "a car engine", "climate change", "the brain", "cancer",
    "a headache", "my homework", "the sun", "Linux", "Java", "Docker", "Kubernetes", "Bitcoin",
    "a guitar", "the piano", "Harry Potter", "Star Wars", "the king of Spain", "a recipe",
    "a horse race", "the Amazon river", "the speed of light", "history", "philosophy", "art",
]  # fmt: skip
_SYLLABLES = ["ba", "ke", "lo", "mi", "ru", "ta", "ven", "zor", "qui", "shan", "pel", "gri", "dou",
              "xi", "wob", "nar", "fen", "cla", "sti", "hy"]  # fmt: skip


class _Relation(NamedTuple):
    subjects: list[str]
    values: list[str]
    fact: str
    yes_no: str
    open_question: str


class _Fact(NamedTuple):
    relation: _Relation
    subject: str
    value: str

    @property
    def text(self) -> str:
        return self.relation.fact.format(s=self.subject, v=self.value)

    @property
    def sentence(self) -> str:
        return f"{self.text[0].upper()}{self.text[1:]}."


_RELATIONS = [
    _Relation(THINGS, COLOURS, "the {s} is {v}", "Is the {s} {v}?", "What colour is the {s}?"),
    _Relation(NAMES, PLACES, "{s} is in the {v}", "Is {s} in the {v}?", "Where is {s}?"),
    _Relation(NAMES, ANIMALS, "{s} has a {v}", "Does {s} have a {v}?", "What does {s} have?"),
]


def draw_fact(rng: Random) -> Sample:
    relations = rng.sample(_RELATIONS, rng.randint(1, len(_RELATIONS)))
    facts = [_Fact(r, rng.choice(r.subjects), rng.choice(r.values)) for r in relations]
    picked = rng.choice(facts)
    others = [value for value in picked.relation.values if value != picked.value]
    asked = picked.value if rng.random() < 0.5 else rng.choice(others)
    context = " ".join(fact.sentence for fact in facts)
    key = f"{context} {picked.subject} {asked}"
    lead = f"{rng.choice(_LEADS)} {context}"
    known = f"From the context: {picked.text}"
    if rng.random() < _OPEN_SHARE:
        # A plain look-up: trains reading the context; never asked in the held-out set.
        question = f"{lead} {picked.relation.open_question.format(s=picked.subject)}"
        checker = {"kind": "phrases", "value": [picked.text]}
        return Sample("facts_open", key, question, f"{known}.", checker)
    verdict = "yes" if asked == picked.value else "no"
    question = f"{lead} {picked.relation.yes_no.format(s=picked.subject, v=asked)}"
    checker = {"kind": "yes_no", "value": verdict}
    return Sample("facts", key, question, f"{known}, so {verdict}.", checker)


def draw_greeting(rng: Random) -> Sample:
    questions, answer = rng.choice(_TALK)
    question = rng.choice(questions)
    return Sample("greeting", f"greeting {question}", question, answer)


_KNOWLEDGE = Path(__file__).parent.parent / "knowledge.toml"


@cache
def load_knowledge() -> dict[str, Any]:
    return tomllib.loads(_KNOWLEDGE.read_text(encoding="utf-8"))


def draw_product(rng: Random) -> Sample:
    knowledge = load_knowledge()
    intent = rng.choice(knowledge["intent"])
    frame = rng.choice(knowledge["frames"][intent["frame"]])
    question = frame.format(x=rng.choice(intent["phrases"]))
    question = question[0].upper() + question[1:]
    checker = {"kind": "phrases", "value": intent["must"]}
    return Sample("product", normalize(question), question, intent["answer"], checker)


def draw_unknown(rng: Random) -> Sample:
    topic = _invented(rng) if rng.random() < 0.4 else rng.choice(_UNKNOWN_TOPICS)
    question = rng.choice(_FRAMES).format(x=topic)
    question = question[0].upper() + question[1:]
    checker = {"kind": "phrases", "value": ["don't know"]}
    return Sample("unknown", normalize(question), question, ANSWER, checker)


def _invented(rng: Random) -> str:
    """A word that means nothing, so that what the model never saw counts as unknown."""
    word = "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4)))
    return word.capitalize() if rng.random() < 0.5 else word
