"""Validated changes of a row, returned as values before and after for the audit log."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model

from control.errors import InvalidValue


def create_row(row: Model) -> None:
    """Validate a new row and save it. Raises InvalidValue naming the first invalid field."""
    _validate(row)
    row.save(force_insert=True)


def apply_changes(row: Model, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Set the fields that differ, validate the row and save it; return what changed as values
    `before` and `after`, by field. Nothing is returned where nothing changed.

    Raises InvalidValue naming the first invalid field.
    """
    before = {field: getattr(row, field) for field in changes}
    different = {field: value for field, value in changes.items() if value != before[field]}
    for field, value in different.items():
        setattr(row, field, value)
    if different:
        _validate(row)
        row.save(update_fields=list(different))
    return differences(before, different) if different else {}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values before and after as JSON, for the fields of `after`."""
    return {
        "before": {field: _plain(before[field]) for field in after},
        "after": {field: _plain(value) for field, value in after.items()},
    }


def snapshot(row: Model, fields: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a row as JSON values, for the audit log before and after a change."""
    return {field: _plain(getattr(row, field)) for field in sorted(fields)}


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON, for the audit log."""
    return {field: _plain(value) for field, value in values.items()}


def _validate(row: Model) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        param = None if field == "__all__" else field
        raise InvalidValue(f"{param or 'The value'}: {messages[0]}", param=param) from error


def _plain(value: Any) -> Any:
    """Return a JSON value: the id and the name of a related row, a time in ISO 8601."""
    if isinstance(value, Model):
        return {"id": value.pk, "name": str(value)}
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else str(value)
