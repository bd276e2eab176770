"""Credentials of the data plane's processes: `role.name.number.mac`, base64url of an HMAC-SHA-256.

Each is made from a root secret that control and the fleet alone hold. Who checks one computes it
anew and needs no table, so that it is checked while the database is away; who holds one can make no
other, and may do what its role may. To change one, its number is raised and the one before is named
among the ended, which ends every number up to it; to change the root, the one before is known
beside it for a while.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

Role = Literal["gateway", "fleet", "control"]
ROLES: tuple[Role, ...] = get_args(Role)
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
SCHEME = "Bearer "
ROOT_CHARACTERS_MIN = 16
ROOT_VARIABLE = "PENSTOCK_INTERNAL_SECRET"
ROOT_BEFORE_VARIABLE = "PENSTOCK_INTERNAL_SECRET_PREVIOUS"
ENDED_VARIABLE = "PENSTOCK_INTERNAL_REVOKED"
"""The variables of who checks: the root, the one before, and of each caller the last number whose
time is over."""


class ServiceIdentity(NamedTuple):
    """Who calls: which process, and the number of its credential."""

    role: Role
    name: str
    number: int = 1

    @classmethod
    def read(cls, told: str) -> "ServiceIdentity":
        """Read such as `gateway.eu-1.2`. Raises ValueError that says what was wanted."""
        role, _, rest = told.partition(".")
        name, _, number = rest.partition(".")
        if role not in ROLES or not NAME.fullmatch(name) or not _NUMBER.fullmatch(number):
            raise ValueError(f"{told!r}; wanted such as gateway.eu-1.2: a role, a name, a number")
        return cls(role, name, int(number))

    def __str__(self) -> str:
        return f"{self.role}.{self.name}.{self.number}"


def issue(root: str, caller: ServiceIdentity) -> str:
    """Return the credential of a caller."""
    told = str(ServiceIdentity.read(str(caller)))
    mac = hmac.digest(root.encode(), b"penstock credential " + told.encode(), "sha256")
    return f"{told}.{urlsafe_b64encode(mac).decode().rstrip('=')}"


class ServiceAuthenticator:
    """Who may call, by the roots that are known; those who `ended` may not any more, nor may
    they with a number before."""

    def __init__(self, roots: Sequence[str], ended: Collection[ServiceIdentity] = ()) -> None:
        self._roots = tuple(roots)
        self._ended: dict[tuple[Role, str], int] = {}
        for role, name, number in ended:
            self._ended[role, name] = max(number, self._ended.get((role, name), 0))

    def find(self, authorization: str) -> ServiceIdentity | None:
        """Return who shows a credential in a header; None when it is none of ours."""
        told, _, _ = authorization.removeprefix(SCHEME).rpartition(".")
        try:
            caller = ServiceIdentity.read(told)
        except ValueError:
            return None
        given = authorization.encode(errors="replace")
        shown = [SCHEME + issue(root, caller) for root in self._roots]
        is_ours = [hmac.compare_digest(given, one.encode()) for one in shown]
        has_ended = caller.number <= self._ended.get((caller.role, caller.name), 0)
        return caller if any(is_ours) and not has_ended else None


def callers_of(environ: Mapping[str, str]) -> ServiceAuthenticator:
    """Return who may call by what an operator has set. Raises ValueError naming the variable."""
    roots = [environ.get(ROOT_VARIABLE, "")]
    if before := environ.get(ROOT_BEFORE_VARIABLE):
        roots.append(before)
    for name, root in zip((ROOT_VARIABLE, ROOT_BEFORE_VARIABLE), roots, strict=False):
        if len(root) < ROOT_CHARACTERS_MIN:
            raise ValueError(f"{name} is too short; wanted at least {ROOT_CHARACTERS_MIN} letters")
    try:
        told = [each.strip() for each in environ.get(ENDED_VARIABLE, "").split(",")]
        return ServiceAuthenticator(roots, [ServiceIdentity.read(each) for each in told if each])
    except ValueError as error:
        raise ValueError(f"{ENDED_VARIABLE} has {error}") from error
