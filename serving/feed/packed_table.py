"""A map of many small values, packed: a million entries without an object for each.

Keys are digests of one length. They are spread evenly, so their first bytes choose a block; they
occur in no value, so an entry is found by searching its block for them. An entry is the key, the
generation that it was last put or retained in, the length of its value, and the value. A million
entries make blocks of some 15; each is written anew when one of its entries changes, so that none
has room to spare.
"""

import secrets
from collections.abc import Callable, Iterator
from operator import attrgetter
from struct import Struct
from typing import Any, Generic

import msgspec
import xxhash

from serving.feed.mirror import Record

BLOCKS = 1 << 16
_GENERATION_AND_SIZE = Struct("<II")


class PackedMap:
    """Values by keys of `key_bytes`. In each generation some entries are put or retained, the
    others are stale: `stale` returns those that are left."""

    def __init__(self, key_bytes: int) -> None:
        self._key_bytes = key_bytes
        self._head_bytes = key_bytes + _GENERATION_AND_SIZE.size
        self._blocks = [b""] * BLOCKS
        self._count = self._fresh_count = 0
        self._generation = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> bytes | None:
        """Return the value; None where there is none."""
        block = self._blocks[_number(key)]
        at = block.find(key)
        return None if at < 0 else block[at + self._head_bytes : self._end(block, at)]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        number = _number(key)
        block = self._blocks[number]
        entry = key + _GENERATION_AND_SIZE.pack(self._generation, len(value)) + value
        at = block.find(key)
        if at < 0:
            self._blocks[number] = block + entry
        else:
            self._count_out(block, at)
            self._blocks[number] = block[:at] + entry + block[self._end(block, at) :]
        self._count += 1
        self._fresh_count += 1

    def pop(self, key: bytes) -> None:
        """Remove an entry where there is one."""
        number = _number(key)
        block = self._blocks[number]
        at = block.find(key)
        if at >= 0:
            self._count_out(block, at)
            self._blocks[number] = block[:at] + block[self._end(block, at) :]

    def begin_generation(self) -> None:
        """Begin a generation: every entry is stale that is not put or retained from now on."""
        self._generation += 1
        self._fresh_count = 0

    def retain(self, key: bytes) -> None:
        """Keep an entry, where there is one, in this generation as it is."""
        value = self.get(key)
        if value is not None:
            self.put(key, value)

    def stale(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Return stale keys and their values, block by block. They may be removed meanwhile."""
        for block in self._blocks:
            if self._fresh_count == self._count:
                return
            if block:
                yield self._stale_in(block)

    def _stale_in(self, block: bytes) -> list[tuple[bytes, bytes]]:
        found, at = [], 0
        while at < len(block):
            turn, _ = _GENERATION_AND_SIZE.unpack_from(block, at + self._key_bytes)
            start, end = at + self._head_bytes, self._end(block, at)
            if turn != self._generation:
                found.append((block[at : at + self._key_bytes], block[start:end]))
            at = end
        return found

    def _end(self, block: bytes, at: int) -> int:
        _, size = _GENERATION_AND_SIZE.unpack_from(block, at + self._key_bytes)
        return at + self._head_bytes + int(size)

    def _count_out(self, block: bytes, at: int) -> None:
        turn, _ = _GENERATION_AND_SIZE.unpack_from(block, at + self._key_bytes)
        self._count -= 1
        self._fresh_count -= turn == self._generation


def _number(key: bytes) -> int:
    return key[0] << 8 | key[1]


_SEED = secrets.randbits(64)
"""This process has its own: nobody can choose ids that fall into one block."""
ID_DIGEST_BYTES = 16


def id_digest(id_: str) -> bytes:
    """Return the digest that stands for an id."""
    return xxhash.xxh3_128_digest(id_.encode(), seed=_SEED)


class RecordPacker(Generic[Record]):
    """Writes records of a type as the values of their fields alone, all but those `left_out`."""

    def __init__(self, of: type[Record], *left_out: str) -> None:
        fields = [field for field in msgspec.structs.fields(of) if field.name not in left_out]
        self._of = of
        self._names = [field.name for field in fields]
        self._values = attrgetter(*self._names)
        self._encoder = msgspec.msgpack.Encoder()
        types: Any = tuple[tuple(field.type for field in fields)]  # type: ignore[misc]
        self._decoder = msgspec.msgpack.Decoder(types)

    def pack(self, record: Record) -> bytes:
        """Return the record as bytes."""
        return self._encoder.encode(self._values(record))

    def unpack(self, data: bytes, **left_out: object) -> Record:
        """Return the record again."""
        values = zip(self._names, self._decoder.decode(data), strict=True)
        return self._of(**dict(values), **left_out)


class PackedTable(Generic[Record]):
    """A table of records of one type; `changing` hears of each what is and what will be."""

    def __init__(
        self, of: type[Record], changing: Callable[[Record | None, Record | None], None]
    ) -> None:
        self._packing = RecordPacker(of)
        self._map = PackedMap(ID_DIGEST_BYTES)
        self._changing = changing

    def __len__(self) -> int:
        return len(self._map)

    def get(self, id_: str) -> Record | None:
        """Return the record of an id."""
        data = self._map.get(id_digest(id_))
        return None if data is None else self._packing.unpack(data)

    def put(self, id_: str, record: Record | None) -> None:
        """Put a record in the place of the last one of this id; None removes it."""
        place = id_digest(id_)
        before = self._map.get(place)
        self._changing(None if before is None else self._packing.unpack(before), record)
        if record is None:
            self._map.pop(place)
        else:
            self._map.put(place, self._packing.pack(record))

    def begin_snapshot(self) -> None:
        """Begin a snapshot: what is neither put nor retained until `remove_stale` is stale."""
        self._map.begin_generation()

    def retain(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""
        self._map.retain(id_digest(id_))

    def remove_stale(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for entries in self._map.stale():
            for place, data in entries:
                self._changing(self._packing.unpack(data), None)
                self._map.pop(place)
            yield
