"""API keys by the million, found by digest."""

from collections.abc import Callable, Iterator

from serving.contract.records import ApiKeyRecord
from serving.feed.packed_map import PackedMap
from serving.feed.packed_records import PLACE_BYTES, Packing, place_of

DIGEST_BYTES = 32


class Keys:
    """A table of keys; `changing` hears of each digest before what it stands for changes."""

    def __init__(self, changing: Callable[[str], None]) -> None:
        self._packing = Packing(ApiKeyRecord, "digest")
        self._keys = PackedMap(DIGEST_BYTES)
        self._digests = PackedMap(PLACE_BYTES)
        """By the places of the keys' ids."""
        self._changing = changing

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, digest: str) -> ApiKeyRecord | None:
        """Return the key of this digest."""
        data = self._keys.get(bytes.fromhex(digest))
        return None if data is None else self._packing.unpack(data, digest=digest)

    def take(self, id_: str, record: ApiKeyRecord | None) -> None:
        """Put a key in the place of the last one of this id; None removes it."""
        place = place_of(id_)
        digest = None if record is None else bytes.fromhex(record.digest)
        if self._digests.get(place) != digest:
            self._remove(place)
        if record is not None and digest is not None:
            self._changing(record.digest)
            self._keys.put(digest, self._packing.pack(record))
            self._digests.put(place, digest)

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""
        self._keys.begin_turn()
        self._digests.begin_turn()

    def keep(self, id_: str) -> None:
        """Leave the key of an id, where there is one, as it is."""
        place = place_of(id_)
        digest = self._digests.get(place)
        if digest is not None:
            self._digests.name(place)
            self._keys.name(digest)

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for entries in self._digests.stale():
            for place, _ in entries:
                self._remove(place)
            yield

    def _remove(self, place: bytes) -> None:
        """Remove a key and its digest, unless that stands for another key by now."""
        digest = self._digests.get(place)
        if digest is None:
            return
        self._digests.pop(place)
        self._changing(digest.hex())
        holder = self.find(digest.hex())
        if holder is not None and place_of(holder.key_id) == place:
            self._keys.pop(digest)
