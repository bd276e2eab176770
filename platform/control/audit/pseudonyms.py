"""People stand in audit events by reference, so that whoever is erased is named nowhere and no
event changes. Who they are is asked of directories, which the packages above register.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from django.db.models import Q, QuerySet

from control.audit.models import AuditEvent

EMAIL = re.compile(r"[^\s<>\"'(),:;/\[\]@]+@((?:[\w-]+\.)+[A-Za-z]{2,})")
MARKS = re.compile("[⟦⟧]")
"""Around a reference; whatever else says them loses them, so that nobody can ask who an id is."""
REFERENCE = re.compile(r"⟦((?:user|inv_|opinv_)[0-9A-Za-z]{1,60})⟧")
ERASED = "erased person"
PERSON = "user"


class NameDirectory:
    """Knows the people behind some ids. Packages above register theirs (`control.apps`)."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these addresses (lower case), by address."""
        return {}

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return people's addresses by the ids that it knows; erased ones are left out."""
        return {}

    def search(self, text: str) -> QuerySet[Any, str] | None:
        """Return the ids of users whose address or name holds a text; None where it knows none."""
        return None


_directories: list[NameDirectory] = []


def register(directory: NameDirectory) -> None:
    """Ask this directory too, once per process."""
    if all(type(each) is not type(directory) for each in _directories):
        _directories.append(directory)


def by_people_named(text: str) -> Q:
    """Return the filter of events by users whose address or name holds a text."""
    found = Q(pk__in=[])
    for directory in _directories:
        if (ids := directory.search(text)) is not None:
            found |= Q(actor_id__in=ids)
    return found


def _ids_of(emails: Iterable[str]) -> dict[str, str]:
    asked, found = list(emails), dict[str, str]()
    for directory in _directories:
        found |= directory.references(asked)
    return found


def _names_of(references: Iterable[str]) -> dict[str, str]:
    asked, found = list(references), dict[str, str]()
    for directory in _directories:
        found |= directory.names(asked)
    return found


def pseudonymize(details: dict[str, Any], target_kind: str, target_id: str) -> dict[str, Any]:
    """Return details that name people by id: users by theirs, who was invited by the invitation's.
    Of an address that is nobody's only the domain stays."""
    if any(MARKS.search(text) for text in _texts(details)):
        details = cast("dict[str, Any]", _replaced(details, MARKS, ""))
    emails = {found[0].lower() for text in _texts(details) for found in EMAIL.finditer(text)}
    if not emails:
        return details
    known = _ids_of(emails)

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
        self._names = _names_of(asked) if asked else {}

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
