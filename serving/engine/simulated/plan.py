"""What one choice of a request will say, decided before the first token."""

from dataclasses import dataclass

from serving.engine.simulated.request import Work
from serving.engine.simulated.tokens import Vocabulary
from serving.engine.simulated.tools import Function, arguments_of


@dataclass(frozen=True, slots=True)
class Plan:
    """One piece of text per generated token; the end-of-text token's piece is empty.

    Where a function is `called`, the pieces are its arguments.
    """

    pieces: list[str]
    finish_reason: str
    stop_reason: str | None = None
    called: str | None = None


def plan_choice(work: Work, choice: int, vocabulary: Vocabulary, mean_tokens: int) -> Plan:
    """Return what choice number `choice` says: to its own end, the limit, or a stop string."""
    answer = vocabulary.answer(work.prompt, salt=work.seed * 131 + choice, mean_tokens=mean_tokens)
    if work.called is not None:
        return _call(work.called, [vocabulary.word(answer, index) for index in range(8)], work)
    ends_itself = not work.ignore_eos and answer.length < work.max_tokens
    count = answer.length if ends_itself else work.max_tokens
    pieces = [vocabulary.word(answer, index) for index in range(count)]
    if work.stop and (cut := _cut(pieces, work.stop)):
        return cut
    if ends_itself:
        return Plan([*pieces, ""], "stop")
    return Plan(pieces, "length")


def _call(function: Function, words: list[str], work: Work) -> Plan:
    pieces = [*arguments_of(function, words), ""]
    finish_reason = "tool_calls" if len(pieces) <= work.max_tokens else "length"
    return Plan(pieces[: work.max_tokens], finish_reason, called=function.name)


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
