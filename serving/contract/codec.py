"""JSON in and out of contract records, with errors that name the field, the value and the wish."""

from functools import lru_cache
from typing import TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises for bytes that are no JSON of the expected kind; the second one for strings
that are no UTF-8."""


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
        return _decoder(kind).decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise ContractError(f"{kind.__name__}: {error}") from error


@lru_cache
def _decoder(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    """To make one costs more than it takes to read a record."""
    return msgspec.json.Decoder(kind)


def storable(text: str) -> str:
    """Return text that UTF-8 and PostgreSQL can hold: no NUL, no lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def bad_value(field: str, value: object, wanted: str) -> ValueError:
    """Return the error that names `field`, its `value` and what was wanted."""
    return ValueError(f"{field} is {value!r}; wanted {wanted}")


def require(condition: bool, field: str, value: object, wanted: str) -> None:
    """Raise `bad_value` unless `condition`."""
    if not condition:
        raise bad_value(field, value, wanted)
