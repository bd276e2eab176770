"""What one choice of a request will say, decided before the first token."""

from dataclasses import dataclass

from serving.engine.simulated.request import Work
from serving.engine.simulated.tokens import Vocabulary


@dataclass(frozen=True, slots=True)
class Plan:
    """One piece of text per generated token; the end-of-text token's piece is empty."""

    pieces: list[str]
    finish_reason: str
    stop_reason: str | None = None


def plan_choice(work: Work, choice: int, vocabulary: Vocabulary, mean_tokens: int) -> Plan:
    """Return what choice number `choice` says: to its own end, the limit, or a stop string."""
    answer = vocabulary.answer(work.prompt, salt=work.seed * 131 + choice, mean_tokens=mean_tokens)
    ends_itself = not work.ignore_eos and answer.length < work.max_tokens
    count = answer.length if ends_itself else work.max_tokens
    pieces = [vocabulary.word(answer, index) for index in range(count)]
    if work.stop and (cut := _cut(pieces, work.stop)):
        return cut
    if ends_itself:
        return Plan([*pieces, ""], "stop")
    return Plan(pieces, "length")


def _cut(pieces: list[str], stops: tuple[str, ...]) -> Plan | None:
    text = "".join(pieces)
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return None
    start, stop = min(found)
    kept: list[str] = []
    position = 0
    for piece in pieces:
        kept.append(piece[: max(0, start - position)])
        position += len(piece)
        if position >= start + len(stop):
            break
    return Plan(kept, "stop", stop)
