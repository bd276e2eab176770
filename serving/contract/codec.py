"""JSON in and out of contract records, with errors that name the field, the value and the wish."""

from typing import TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


class ContractError(ValueError):
    """A record from another process does not hold to the contract."""


def encode(record: msgspec.Struct) -> bytes:
    """Return the record as compact JSON bytes (times as RFC 3339, UTC)."""
    return msgspec.json.encode(record)


def decode(data: bytes | msgspec.Raw, kind: type[Record]) -> Record:
    """Parse and validate JSON bytes into `kind`.

    Raises ContractError with the path of the bad field when the bytes are not such a record.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise ContractError(f"{kind.__name__}: {error}") from error


def require(condition: bool, field: str, value: object, wanted: str) -> None:
    """Raise ValueError naming `field`, its `value` and what was wanted, unless `condition`."""
    if not condition:
        raise ValueError(f"{field} is {value!r}; wanted {wanted}")
