"""From a body's bytes to a closed type, and from a refusal to an error that names the field."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from serving.contract.codec import NOT_JSON
from serving.gateway.dialects.expectation import Expectation, expected_at, shown
from serving.gateway.dialects.nulls import drop_nulls, shape_of
from serving.gateway.errors import BadRequest

Body = TypeVar("Body", bound=msgspec.Struct)

_UNKNOWN = "Object contains unknown field `"
_MISSING = "Object missing required field `"
_AT = " - at `"
FIELD_CHARACTERS_MAX = 120
NULL = b"null"


class BodyDecoder:
    """Decodes one kind of body; built once, since building costs more than decoding."""

    def __init__(self, kind: type[Body]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        # Asked for once: it costs a millisecond, and is full of circles.
        self._kind = msgspec.inspect.type_info(kind)
        self._shape = shape_of(self._kind)

    def __call__(self, data: bytes | msgspec.Raw) -> msgspec.Struct:
        """Return the body, in which a null is an absent field.

        Raises BadRequest naming the field that is unknown or wrong.
        """
        try:
            try:
                return self._decoder.decode(data)
            except msgspec.ValidationError:
                if NULL not in bytes(data):
                    raise
                return self._decoder.decode(self._without_nulls(data))
        except msgspec.ValidationError as error:
            raise self._explain(str(error), data) from None
        except (*NOT_JSON, RecursionError):
            raise BadRequest(
                "We could not parse the JSON body of your request.", code="invalid_json"
            ) from None

    def _explain(self, text: str, data: bytes | msgspec.Raw) -> BadRequest:
        try:
            body = msgspec.json.decode(data)
        except (*NOT_JSON, RecursionError):
            body = msgspec.UNSET  # what is wrong stood before what cannot be read
        return explain(text, lambda path: expected_at(self._kind, path, body))

    def _without_nulls(self, data: bytes | msgspec.Raw) -> bytes:
        body = msgspec.json.decode(data)
        drop_nulls(body, self._shape)
        return msgspec.json.encode(body)


def explain(text: str, expected: Callable[[str], Expectation]) -> BadRequest:
    """Turn msgspec's words into an error with `param` and `code`, which says what was sent and what
    is `expected` there.

    The words hold what the client wrote, of any length: nothing here searches them twice.
    """
    reason, found, at = text.rpartition(_AT)
    if not found:
        reason, at = text, ""
    path = at.removesuffix("`").removeprefix("key in ").removeprefix("$")
    if reason.startswith(_UNKNOWN):
        param = _join(path, reason[len(_UNKNOWN) :].removesuffix("`"))
        return BadRequest(f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)
    if reason.startswith(_MISSING):
        param = _join(path, reason[len(_MISSING) :].removesuffix("`"))
        message = f"Missing required parameter: '{param}'."
        return BadRequest(message, code="missing_required_parameter", param=param)
    param = _join(path, "")
    if param.endswith(".type") and "content[" in param:
        sent = expected(path).shown
        return invalid_words(param, sent, "only text is accepted here, no images or files")
    wanted, sent = expected(path)
    if not param:
        got = f"got {sent}; "
        message = f"Invalid body: {got}expected {wanted}."
        return BadRequest(message, code="invalid_value", quoted=got)
    return invalid_words(param, sent, f"expected {wanted}")


def invalid(param: str, wanted: str, sent: Any = msgspec.UNSET) -> BadRequest:
    """Return the error for a value that the types alone cannot refuse: what was sent, where that
    helps, and what is wanted."""
    return invalid_words(param, "" if sent is msgspec.UNSET else shown(sent), wanted)


def invalid_words(param: str, sent: str, wanted: str) -> BadRequest:
    """Return the error for a value, which may be told as words already."""
    got = f"got {sent}; " if sent else ""
    message = f"Invalid value for '{param}': {got}{wanted}."
    return BadRequest(message, code="invalid_value", param=param, quoted=got)


def placed(error: BadRequest, place: str) -> BadRequest:
    """Return the error with the place before the field's name."""
    if error.param is None:
        message = f"{error.message} It is '{place}'."
        return BadRequest(message, code=error.code, param=place, quoted=error.quoted)
    param = f"{place}.{error.param}"
    message = error.message.replace(f"'{error.param}", f"'{param}", 1)
    return BadRequest(message, code=error.code, param=param, quoted=error.quoted)


def _join(path: str, field: str) -> str:
    field = field[:FIELD_CHARACTERS_MAX]
    whole = f"{path[:FIELD_CHARACTERS_MAX]}.{field}" if field else path[:FIELD_CHARACTERS_MAX]
    return whole.lstrip(".")[:FIELD_CHARACTERS_MAX]
