"""API keys by the million, found by the digests of their secrets."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import UNSET

from serving.contract.records import ApiKeyRecord, PreviousSecretRecord
from serving.feed.packed_table import PLACE_BYTES, PackedMap, RecordPacker, place_of

DIGEST_BYTES = 32


class Keys:
    """A table of keys; `changing` hears of each digest before what it stands for changes.

    An old secret stands for the same key, as one that expires when the secret ends."""

    def __init__(self, changing: Callable[[str], None]) -> None:
        self._packing = RecordPacker(ApiKeyRecord, "digest", "old_secrets")
        self._keys = PackedMap(DIGEST_BYTES)
        self._digests = PackedMap(PLACE_BYTES)
        """By the places of the keys' ids: of each key's secret, then of its old ones."""
        self._changing = changing

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, digest: str) -> ApiKeyRecord | None:
        """Return the key that the secret of this digest opens, or opened until it expired."""
        data = self._keys.get(bytes.fromhex(digest))
        if data is None:
            return None
        return self._packing.unpack(data, digest=digest, old_secrets=UNSET)

    def take(self, id_: str, record: ApiKeyRecord | None) -> None:
        """Put a key in the place of the last one of this id; None removes it."""
        place = place_of(id_)
        opened = [] if record is None else _opened_by(record)
        digests = b"".join([digest for digest, _ in opened])
        before = self._digests.get(place) or b""
        if before and before != digests:
            self._remove(place, before)
        for digest, key in opened:
            self._changing(digest.hex())
            self._keys.put(digest, self._packing.pack(key))
        if opened:
            self._digests.put(place, digests)

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""
        self._keys.begin_turn()
        self._digests.begin_turn()

    def keep(self, id_: str) -> None:
        """Leave the key of an id, where there is one, as it is."""
        place = place_of(id_)
        digests = self._digests.get(place)
        if digests is not None:
            self._digests.name(place)
            for digest in _each(digests):
                self._keys.name(digest)

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for entries in self._digests.stale():
            for place, digests in entries:
                self._remove(place, digests)
            yield

    def _remove(self, place: bytes, digests: bytes) -> None:
        """Remove a key and its digests, unless one stands for another key by now."""
        for digest in _each(digests):
            self._changing(digest.hex())
            holder = self.find(digest.hex())
            if holder is not None and place_of(holder.key_id) == place:
                self._keys.pop(digest)
        self._digests.pop(place)


def _opened_by(record: ApiKeyRecord) -> list[tuple[bytes, ApiKeyRecord]]:
    """Return the digests of a key's secrets, each with the key as it opens it."""
    own = (bytes.fromhex(record.digest), record)
    if record.old_secrets is UNSET:
        return [own]
    old = record.old_secrets
    return [own, *((bytes.fromhex(one.digest), _until(record, one)) for one in old)]


def _until(record: ApiKeyRecord, secret: PreviousSecretRecord) -> ApiKeyRecord:
    ends = [secret.ends_at, *([record.expires_at] if record.expires_at else [])]
    return msgspec.structs.replace(record, expires_at=min(ends))


def _each(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
