"""What an engine's stream says of the tokens it took, chunk by chunk."""

from serving.gateway.sse import choice_index, cut_usage, read_usage
from serving.usage.meter import Tokens


class Tally:
    """Keeps the last usage of each choice; the usage at the end of the stream overrules them."""

    def __init__(self, *, choices: int, prompts: int) -> None:
        self._choices = choices
        self._choices_per_prompt = choices // prompts
        self._usages: dict[int, bytes] = {}
        self._final: Tokens | None = None

    def take(self, event: bytes) -> bytes | None:
        """Note the event's usage and return the rest of it, if there is any."""
        event, usage = cut_usage(event)
        if b'"choices":[]' in event:
            if usage is not None:
                self._final = Tokens.of(read_usage(usage))
            return None
        if usage is not None:
            index = choice_index(event) if self._choices > 1 else 0
            self._usages[index] = usage
        return event

    @property
    def tokens(self) -> Tokens:
        """What the engine has said so far; at the end, what it took in all.

        Before the end nothing is known of cached input: vLLM names it in its last chunk only.
        """
        if self._final is not None:
            return self._final
        seen = {index: Tokens.of(read_usage(usage)) for index, usage in self._usages.items()}
        # Every choice states its prompt anew; several prompts come in order, n choices each.
        prompts = {index // self._choices_per_prompt: one.input for index, one in seen.items()}
        return Tokens(
            input=sum(prompts.values()),
            output=sum(one.output for one in seen.values()),
            reasoning=sum(one.reasoning for one in seen.values()),
        )
