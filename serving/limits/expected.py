"""What a request is expected to take, before anybody has counted: a quarter of its bytes as input,
and as output what its key's requests took of late."""

FIRST_OUTPUT_TOKENS = 256
"""Of a key that was not seen yet."""
WEIGHT = 0.2
"""Of the latest request in a key's mean."""
BYTES_PER_TOKEN = 4
KEYS_MAX = 65_536


class Expected:
    """The recent mean of output by key."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def output_tokens(self, key_id: str, at_most: int) -> int:
        """Return how many tokens a request will make, of so many at most."""
        return min(max(round(self._means.get(key_id, FIRST_OUTPUT_TOKENS)), 1), at_most)

    def note(self, key_id: str, output_tokens: int) -> None:
        """Learn what a request made."""
        mean = self._means.get(key_id)
        if mean is None and len(self._means) >= KEYS_MAX:
            self._means.clear()
        came = float(output_tokens)
        self._means[key_id] = came if mean is None else mean + WEIGHT * (came - mean)


def input_tokens(prompt_bytes: int) -> int:
    """Return how many tokens a prompt will have."""
    return max(prompt_bytes // BYTES_PER_TOKEN, 1)
