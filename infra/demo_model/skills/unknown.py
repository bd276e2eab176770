"""Questions outside of what the model knows, which it should say politely."""

from random import Random

from infra.demo_model.sample import Sample
from infra.demo_model.split import normalize

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
_TOPICS = [
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


def draw(rng: Random) -> Sample:
    topic = _invented(rng) if rng.random() < 0.4 else rng.choice(_TOPICS)
    question = rng.choice(_FRAMES).format(x=topic)
    question = question[0].upper() + question[1:]
    checker = {"kind": "phrases", "value": ["don't know"]}
    return Sample("unknown", normalize(question), question, ANSWER, checker)


def _invented(rng: Random) -> str:
    """A word that means nothing, so that what the model never saw counts as unknown."""
    word = "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4)))
    return word.capitalize() if rng.random() < 0.5 else word
