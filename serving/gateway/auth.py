"""From an API key to a principal: whose it is, what it may, and from where, with one answer for
every failure. Keys are found by the digests of their secrets, a million of them without an
object each."""

import hashlib
import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_network

import msgspec
from msgspec import UNSET

from serving.contract import api_key
from serving.contract.api_key import is_well_formed
from serving.contract.client_address import Address, Network, is_in
from serving.contract.records import (
    ApiKeyRecord,
    OrganizationRecord,
    PreviousSecretRecord,
    ProjectRecord,
)
from serving.feed.packed_table import (
    ID_DIGEST_BYTES,
    PackedMap,
    PackedTable,
    RecordPacker,
    id_digest,
)
from serving.gateway.errors import (
    Forbidden,
    OrganizationSuspended,
    ServiceUnavailable,
    Unauthorized,
)
from serving.gateway.http.request import HttpRequest

DIGEST_BYTES = 32


class ApiKeyTable:
    """A table of keys; `changing` hears of each digest before what it stands for changes.

    An old secret stands for the same key, as one that expires when the secret ends."""

    def __init__(self, changing: Callable[[str], None]) -> None:
        self._packing = RecordPacker(ApiKeyRecord, "digest", "old_secrets")
        self._keys = PackedMap(DIGEST_BYTES)
        self._digests = PackedMap(ID_DIGEST_BYTES)
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

    def put(self, id_: str, record: ApiKeyRecord | None) -> None:
        """Put a key in the place of the last one of this id; None removes it."""
        place = id_digest(id_)
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

    def begin_snapshot(self) -> None:
        """Begin a snapshot: what is neither put nor retained until `remove_stale` is stale."""
        self._keys.begin_generation()
        self._digests.begin_generation()

    def retain(self, id_: str) -> None:
        """Leave the key of an id, where there is one, as it is."""
        place = id_digest(id_)
        digests = self._digests.get(place)
        if digests is not None:
            self._digests.retain(place)
            for digest in _each(digests):
                self._keys.retain(digest)

    def remove_stale(self) -> Iterator[None]:
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
            if holder is not None and id_digest(holder.key_id) == place:
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


REMEMBERED_MAX = 10_000
"""Principals kept made, about 2 KB each; another is made within some 30 µs."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a key in force, its project and its organization, which may be suspended."""

    key: ApiKeyRecord
    project: ProjectRecord
    organization: OrganizationRecord
    networks: tuple[Network, ...] | None
    cache_salt: str
    budget_ids: tuple[str, ...]
    organization_id: str = field(init=False)
    is_suspended: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "organization_id", self.organization.organization_id)
        object.__setattr__(self, "is_suspended", self.organization.status != "active")


class ApiRequest(HttpRequest):
    """A request of the API: whose it is and which variant it named, once that is known."""

    principal: Principal | None = None
    counted_for: OrganizationRecord | None = None
    """The organization among whose requests in progress it counts."""
    variant_id: str | None = None


class Authenticator:
    """Finds whose key it is. A principal is made of three tables when its key is first used, and
    forgotten when one of its records changes or many others were used since.

    Digests of keys are made with one of `key_peppers`.
    """

    def __init__(self, salt_secret: str, key_peppers: Sequence[str] = ()) -> None:
        self.organizations = PackedTable(OrganizationRecord, self._organization_changes)
        self.projects = PackedTable(ProjectRecord, self._project_changes)
        self.keys = ApiKeyTable(self._forget)
        self.is_open = False
        """Whether anybody is known: not from half of a first snapshot."""
        self.is_complete = False
        """Whether a key that is not here is no key: false before the first page of the feed."""
        self._peppers = [pepper.encode() for pepper in key_peppers]
        self._salt_secret = salt_secret.encode()
        self._made: OrderedDict[str, Principal] = OrderedDict()
        """By digest, the oldest first."""
        self._digests_of: dict[str, set[str]] = {}
        """Of each organization, those of `_made`."""
        self._origins: Counter[str] = Counter()
        """How many projects allow each."""

    def find(self, digest: str) -> Principal | None:
        """Return whose key has this digest; None when unknown or archived."""
        made = self._made.get(digest)
        return self._make(digest) if made is None else made

    def authenticate(
        self,
        authorization: str,
        client: Callable[[], Address | None],
        now: Callable[[], datetime],
    ) -> Principal:
        """Return whose key it is; `client` is asked where the key is bound to networks, and `now`
        where it expires.

        Raises Unauthorized, or ServiceUnavailable while keys are unknown.
        """
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized
        principal = self._find_by_secret(secret.strip())
        if principal is None and not self.is_complete:
            message = "This gateway is starting. Please try again."
            raise ServiceUnavailable(message, code="server_is_overloaded")
        if principal is None or not _is_valid(principal, client, now):
            raise Unauthorized
        return principal

    def _find_by_secret(self, secret: str) -> Principal | None:
        """Return whose secret it is; None when unknown. Raises Unauthorized for what is no key,
        which a key that was used lately need not be asked."""
        digests = [api_key.digest(secret, pepper) for pepper in self._peppers]
        for digest in digests:
            if (principal := self._made.get(digest)) is not None:
                return principal
        if not is_well_formed(secret):
            raise Unauthorized
        for digest in digests:
            if (principal := self._make(digest)) is not None:
                return principal
        return None

    def is_allowed_somewhere(self, origin: str) -> bool:
        """Tell whether pages of an origin may call with the keys of some project."""
        return origin in self._origins

    def _make(self, digest: str) -> Principal | None:
        key = self.keys.find(digest) if self.is_open else None
        organization = None if key is None else self.organizations.get(key.organization_id)
        project = None if key is None else self.projects.get(key.project_id)
        if key is None or organization is None or project is None or project.status != "active":
            return None
        if project.organization_id != organization.organization_id:
            return None
        principal = Principal(
            key=key,
            project=project,
            organization=organization,
            networks=_networks(key),
            cache_salt=self._salt(organization.cache_salt_id),
            budget_ids=organization.budget_ids + project.budget_ids + key.budget_ids,
        )
        self._remember(digest, principal)
        return principal

    def _remember(self, digest: str, principal: Principal) -> None:
        if len(self._made) >= REMEMBERED_MAX:
            self._forget(next(iter(self._made)))
        self._made[digest] = principal
        self._digests_of.setdefault(principal.organization_id, set()).add(digest)

    def _forget(self, digest: str) -> None:
        principal = self._made.pop(digest, None)
        if principal is not None:
            digests = self._digests_of[principal.organization_id]
            digests.discard(digest)
            if not digests:
                del self._digests_of[principal.organization_id]

    def _forget_all_of(self, organization_id: str) -> None:
        for digest in self._digests_of.pop(organization_id, ()):
            del self._made[digest]

    def _organization_changes(
        self, before: OrganizationRecord | None, after: OrganizationRecord | None
    ) -> None:
        if before is not None:
            self._forget_all_of(before.organization_id)

    def _project_changes(self, before: ProjectRecord | None, after: ProjectRecord | None) -> None:
        if before is not None:
            self._forget_all_of(before.organization_id)
        self._origins.update(_origins(after))
        for origin in _origins(before):
            self._origins[origin] -= 1
            if not self._origins[origin]:
                del self._origins[origin]

    def _salt(self, cache_salt_id: str) -> str:
        return hmac.new(self._salt_secret, cache_salt_id.encode(), hashlib.sha256).hexdigest()


def _origins(project: ProjectRecord | None) -> tuple[str, ...]:
    """Return whose pages may call with a project's keys."""
    is_active = project is not None and project.status == "active"
    return project.allowed_origins if project is not None and is_active else ()


def _networks(key: ApiKeyRecord) -> tuple[Network, ...] | None:
    """A network that cannot be read matches nothing: a typing error must not open a key."""
    if key.networks is None:
        return None
    networks: list[Network] = []
    for text in key.networks:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            continue
    return tuple(networks)


REFUSALS_A_SECOND = 10.0
REFUSALS_AT_ONCE = 100
REFUSAL_SECONDS_MAX = 5.0
"""The longest that a client waits to hear that its key is unknown."""
ADDRESSES_MAX = 10_000


class RefusalPacer:
    """Delays the refusals of requests that have no valid key, by client address (GCRA): the first
    `REFUSALS_AT_ONCE` leave at once, the others at `REFUSALS_A_SECOND`. No refusal waits longer
    than `REFUSAL_SECONDS_MAX`, and each connection has one request at a time. So an address with
    more connections than may wait by that rate gets one refusal on each of them in that time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: OrderedDict[str, float] = OrderedDict()
        """By address: when the last of its refusals would leave if none left at once. The address
        refused last is at the end."""

    def __len__(self) -> int:
        return len(self._due_at)

    def delay_seconds(self, address: str) -> float:
        """Return for how long one more refusal waits, and count it."""
        now, at_once = self._clock(), REFUSALS_AT_ONCE / REFUSALS_A_SECOND
        due_at = max(now, self._due_at.pop(address, now)) + 1.0 / REFUSALS_A_SECOND
        delay = min(max(0.0, due_at - now - at_once), REFUSAL_SECONDS_MAX)
        self._due_at[address] = min(due_at, now + at_once + REFUSAL_SECONDS_MAX)
        if len(self._due_at) > ADDRESSES_MAX:
            self._due_at.popitem(last=False)
        return delay


INFERENCE = "inference"


def check_permitted(principal: Principal) -> None:
    """Raise OrganizationSuspended, or Forbidden if the key lacks the scope."""
    if principal.is_suspended:
        raise OrganizationSuspended
    if INFERENCE not in principal.key.scopes:
        raise Forbidden("This API key lacks the scope 'inference'.", code="missing_scope")


def may_use(principal: Principal, *names: str) -> bool:
    """Tell whether the key allows a model by any of its names."""
    allowed = principal.key.models
    return allowed is None or any(name in allowed for name in names)


def _is_valid(
    principal: Principal, client: Callable[[], Address | None], now: Callable[[], datetime]
) -> bool:
    """Tell whether a key has not expired, and is used from where it may be."""
    expires_at = principal.key.expires_at
    if expires_at is not None and now() >= expires_at:
        return False
    return principal.networks is None or is_in(client(), principal.networks)
