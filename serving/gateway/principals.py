"""Who asks: the keys, projects and organizations of the change feed, and what they are together."""

import hashlib
import hmac
from collections import Counter, OrderedDict
from dataclasses import dataclass
from ipaddress import ip_network

from serving.contract.client_address import Network
from serving.contract.records import ApiKeyRecord, OrganizationRecord, ProjectRecord
from serving.feed.packed_table import PackedTable
from serving.gateway.keys import Keys

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

    @property
    def organization_id(self) -> str:
        return self.organization.organization_id

    @property
    def is_suspended(self) -> bool:
        return self.organization.status != "active"


class Principals:
    """Made of three tables when a key is first used, and forgotten when one of its records changes
    or many others were used since."""

    def __init__(self, salt_secret: str) -> None:
        self.organizations = PackedTable(OrganizationRecord, self._organization_changes)
        self.projects = PackedTable(ProjectRecord, self._project_changes)
        self.keys = Keys(self._forget)
        self.is_open = False
        """Whether anybody is known: not from half of a first snapshot."""
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
