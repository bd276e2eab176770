"""Validated changes of a row, returned as values before and after for the audit log."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model

from control.errors import InvalidValue

Differences = dict[str, dict[str, Any]]


def create_row(row: Model) -> None:
    """Validate a new row and save it. Raises InvalidValue naming the first invalid field."""
    _validate(row)
    row.save(force_insert=True)


def apply_changes(row: Model, changes: Mapping[str, Any]) -> Differences:
    """Set the fields that differ, validate the row and save it; return what changed.

    Raises InvalidValue naming the first invalid field.
    """
    before = {field: getattr(row, field) for field in changes}
    different = {field: value for field, value in changes.items() if value != before[field]}
    for field, value in different.items():
        setattr(row, field, value)
    if different:
        _validate(row)
        row.save(update_fields=list(different))
    return {
        field: {"before": _plain(before[field]), "after": _plain(value)}
        for field, value in different.items()
    }


def snapshot(row: Model, fields: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a row as JSON values, for the audit log before and after a change."""
    return {field: _plain(getattr(row, field)) for field in sorted(fields)}


def _validate(row: Model) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        param = None if field == "__all__" else field
        raise InvalidValue(f"{param or 'The value'}: {messages[0]}", param=param) from error


def _plain(value: Any) -> Any:
    """Return a JSON value: the id of a related row."""
    if isinstance(value, Model):
        return value.pk
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else str(value)
