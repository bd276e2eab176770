"""Records by the hundred thousand, packed: made anew when one is asked for."""

import secrets
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Generic

import msgspec
import xxhash

from serving.feed.packed_map import PackedMap
from serving.feed.table import Record

_SEED = secrets.randbits(64)
"""Of this process: nobody can choose ids that fall into one place."""
PLACE_BYTES = 16


def place_of(id_: str) -> bytes:
    """Return the digest that stands for an id."""
    return xxhash.xxh3_128_digest(id_.encode(), seed=_SEED)


class Packing(Generic[Record]):
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


class PackedRecords(Generic[Record]):
    """A table of records of one type; `changing` hears of each what is and what will be."""

    def __init__(
        self, of: type[Record], changing: Callable[[Record | None, Record | None], None]
    ) -> None:
        self._packing = Packing(of)
        self._map = PackedMap(PLACE_BYTES)
        self._changing = changing

    def __len__(self) -> int:
        return len(self._map)

    def get(self, id_: str) -> Record | None:
        """Return the record of an id."""
        data = self._map.get(place_of(id_))
        return None if data is None else self._packing.unpack(data)

    def take(self, id_: str, record: Record | None) -> None:
        """Put a record in the place of the last one of this id; None removes it."""
        place = place_of(id_)
        before = self._map.get(place)
        self._changing(None if before is None else self._packing.unpack(before), record)
        if record is None:
            self._map.pop(place)
        else:
            self._map.put(place, self._packing.pack(record))

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""
        self._map.begin_turn()

    def keep(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""
        self._map.name(place_of(id_))

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for entries in self._map.stale():
            for place, data in entries:
                self._changing(self._packing.unpack(data), None)
                self._map.pop(place)
            yield
