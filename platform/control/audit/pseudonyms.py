"""Stores people in audit events by reference, so that erasing a person removes the name everywhere
and changes no event. Directories, registered by the packages above, resolve the references."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from django.db.models import Q, QuerySet

from control.audit.models import AuditEvent

EMAIL = re.compile(r"[^\s<>\"'(),:;/\[\]@]+@((?:[\w-]+\.)+[A-Za-z]{2,})")
MARKS = re.compile("[⟦⟧]")
"""The brackets around a reference. They are removed from all other text, so that nobody can forge a
reference to find out whose id it is."""
REFERENCE = re.compile(r"⟦((?:user|inv_|opinv_)[0-9A-Za-z]{1,60})⟧")
ERASED = "erased person"
PERSON = "user"


class NameDirectory:
    """Resolves some kinds of ids to people. Packages above register theirs (`control.apps`)."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these email addresses (lower case), by address."""
        return {}

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return people's email addresses by the ids that it knows; erased people are left out."""
        return {}

    def search(self, text: str) -> QuerySet[Any, str] | None:
        """Return the ids of users whose email address or name contains a text; None if it has no
        users."""
        return None


_directories: list[NameDirectory] = []


def register(directory: NameDirectory) -> None:
    """Add a directory, once per process and type."""
    if all(type(each) is not type(directory) for each in _directories):
        _directories.append(directory)


def by_people_named(text: str) -> Q:
    """Return the filter of events by users whose email address or name contains a text."""
    found = Q(pk__in=[])
    for directory in _directories:
        if (ids := directory.search(text)) is not None:
            found |= Q(actor_id__in=ids)
    return found


def pseudonymize(details: dict[str, Any], target_kind: str, target_id: str) -> dict[str, Any]:
    """Return details with ids in place of people's email addresses: a user's own id, an invited
    person's invitation id. Only the domain of an unknown address stays."""
    if any(MARKS.search(text) for text in _texts(details)):
        details = cast("dict[str, Any]", _replaced(details, MARKS, ""))
    emails = {found[0].lower() for text in _texts(details) for found in EMAIL.finditer(text)}
    if not emails:
        return details
    known: dict[str, str] = {}
    for directory in _directories:
        known |= directory.references(emails)

    def refer(found: re.Match[str]) -> str:
        if found[0].lower() in known:
            return f"⟦{known[found[0].lower()]}⟧"
        return f"⟦{target_id}⟧" if target_kind.endswith("invitation") else f"…@{found[1]}"

    return cast("dict[str, Any]", _replaced(details, EMAIL, refer))


def without_names(details: dict[str, Any]) -> dict[str, Any]:
    """Return details without references."""
    return cast("dict[str, Any]", _replaced(details, REFERENCE, "…"))


class NameResolver:
    """The current names of the people that some audit events refer to, loaded at once."""

    def __init__(self, events: Iterable[AuditEvent]) -> None:
        references: set[str] = set()
        for event in events:
            if event.actor_kind == PERSON:
                references.add(event.actor_id)
            for text in _texts([event.target_name, event.details]):
                references.update(REFERENCE.findall(text))
        self._names: dict[str, str] = {}
        if references:
            for directory in _directories:
                self._names |= directory.names(references)

    def actor(self, event: AuditEvent) -> str:
        if event.actor_kind != PERSON:
            return event.actor_name
        return self._names.get(event.actor_id) or event.actor_name or ERASED

    def target(self, event: AuditEvent) -> str:
        return str(self._named(event.target_name))

    def details(self, event: AuditEvent) -> dict[str, Any]:
        """Return the details with names in place of references."""
        return cast("dict[str, Any]", self._named(event.details))

    def _named(self, value: Any) -> Any:
        return _replaced(value, REFERENCE, lambda found: self._names.get(found[1], ERASED))


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
