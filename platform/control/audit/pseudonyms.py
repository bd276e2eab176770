"""People in deeds stand by reference, so that who is erased is named nowhere and no deed changes.

Who knows people is above this room: the settings name it (`AUDIT_PEOPLE`).
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Protocol, cast

from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from control.audit.models import AuditEvent

EMAIL = re.compile(r"[^\s<>\"'(),:;/\[\]@]+@((?:[\w-]+\.)+[A-Za-z]{2,})")
MARKS = re.compile("[⟦⟧]")
"""Around a reference; whatever else says them loses them, so that nobody can ask who an id is."""
REFERENCE = re.compile(r"⟦((?:user|inv_)[0-9A-Za-z]{1,60})⟧")
ERASED = "erased person"
PERSON = "user"


class NameDirectory(Protocol):
    """What is asked of who knows people."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these addresses (lower case), by address."""
        ...

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the addresses of users and of who was invited, by id; erased ones are left out."""
        ...

    def called(self, text: str) -> QuerySet[Any, str]:
        """Return the ids of users whose address or name holds a text."""
        ...


@cache
def name_directory() -> NameDirectory:
    """Return who knows people."""
    return cast(NameDirectory, import_string(settings.AUDIT_PEOPLE)())


def pseudonymize(details: dict[str, Any], target_kind: str, target_id: str) -> dict[str, Any]:
    """Return details that name people by id: users by theirs, who was invited by the invitation's.
    Of an address that is nobody's only the domain stays."""
    if any(MARKS.search(text) for text in _texts(details)):
        details = cast("dict[str, Any]", _replaced(details, MARKS, ""))
    emails = {found[0].lower() for text in _texts(details) for found in EMAIL.finditer(text)}
    if not emails:
        return details
    known = name_directory().references(emails)

    def refer(found: re.Match[str]) -> str:
        if found[0].lower() in known:
            return f"⟦{known[found[0].lower()]}⟧"
        return f"⟦{target_id}⟧" if target_kind.endswith("invitation") else f"…@{found[1]}"

    return cast("dict[str, Any]", _replaced(details, EMAIL, refer))


def without_names(details: dict[str, Any]) -> dict[str, Any]:
    """Return details that name nobody."""
    return cast("dict[str, Any]", _replaced(details, REFERENCE, "…"))


class NameResolver:
    """What the references of some deeds are called today, asked for at once."""

    def __init__(self, deeds: Iterable[AuditEvent]) -> None:
        self._deeds = list(deeds)
        asked = {deed.actor_id for deed in self._deeds if deed.actor_kind == PERSON}
        for deed in self._deeds:
            asked.update(each for text in _texts(deed.details) for each in REFERENCE.findall(text))
        self._names = name_directory().names(asked) if asked else {}

    def actor(self, deed: AuditEvent) -> str:
        """Return who did it."""
        if deed.actor_kind != PERSON:
            return deed.actor_name
        return self._names.get(deed.actor_id) or deed.actor_name or ERASED

    def details(self, deed: AuditEvent) -> dict[str, Any]:
        """Return what of it changed, with names in place of references."""
        named = _replaced(deed.details, REFERENCE, lambda found: self._names.get(found[1], ERASED))
        return cast("dict[str, Any]", named)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield str(name)
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)


def _replaced(value: Any, pattern: re.Pattern[str], by: Any) -> Any:
    if isinstance(value, str):
        return pattern.sub(by, value)
    if isinstance(value, dict):
        return {
            pattern.sub(by, str(name)): _replaced(each, pattern, by) for name, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_replaced(each, pattern, by) for each in value]
    return value
