"""A packed map is a dictionary, whatever is done to it."""

import hashlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from serving.feed.packed_table import PackedMap

KEY_BYTES = 20


class AgainstDictionary(RuleBasedStateMachine):
    """Puts, removes and turns over, on both."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.map = PackedMap(KEY_BYTES)
        self.model: dict[bytes, bytes] = {}
        self.named: set[bytes] = set()

    @initialize(target=keys)
    def crowded(self) -> bytes:
        return b"\0\0" + hashlib.sha256(b"first").digest()[2:KEY_BYTES]

    @rule(target=keys, number=st.integers(0, 40))
    def key(self, number: int) -> bytes:
        """Half of all keys share two blocks."""
        digest = hashlib.sha256(str(number).encode()).digest()[:KEY_BYTES]
        return digest if number % 2 else bytes([0, number % 4]) + digest[2:]

    @rule(key=keys, value=st.binary(max_size=300))
    def put(self, key: bytes, value: bytes) -> None:
        self.map.put(key, value)
        self.model[key] = value
        self.named.add(key)

    @rule(key=keys)
    def pop(self, key: bytes) -> None:
        self.map.pop(key)
        self.model.pop(key, None)
        self.named.discard(key)

    @rule()
    def begin_generation(self) -> None:
        self.map.begin_generation()
        self.named = set()

    @rule(key=keys)
    def name(self, key: bytes) -> None:
        self.map.retain(key)
        if key in self.model:
            self.named.add(key)

    @rule(are_removed=st.booleans())
    def sweep(self, are_removed: bool) -> None:
        found = []
        for entries in self.map.stale():
            found += entries
            for key, _ in entries if are_removed else ():
                self.map.pop(key)
        assert dict(found) == {key: self.model[key] for key in self.model.keys() - self.named}
        assert len(found) == len(dict(found))
        if are_removed:
            self.model = {key: self.model[key] for key in self.named}

    @invariant()
    def is_the_same(self) -> None:
        assert len(self.map) == len(self.model)
        for key, value in self.model.items():
            assert self.map.get(key) == value
        assert self.map.get(hashlib.sha256(b"unknown").digest()[:KEY_BYTES]) is None


TestAgainstDictionary = AgainstDictionary.TestCase
TestAgainstDictionary.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
