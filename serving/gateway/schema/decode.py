"""From a body's bytes to a closed type, and from a refusal to an error that names the field."""

import re
from typing import TypeVar

import msgspec

from serving.gateway.errors import BadRequest

Body = TypeVar("Body", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"unknown field `(?P<field>.*?)`(?: - at `\$(?P<path>.*)`)?\Z", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<field>.*?)`(?: - at `\$(?P<path>.*)`)?\Z")
_AT = re.compile(r" - at `(?:key in )?\$(?P<path>.*)`\Z", re.DOTALL)
FIELD_CHARACTERS_MAX = 120


class BodyDecoder:
    """Decodes one kind of body; built once, since building costs more than decoding."""

    def __init__(self, kind: type[Body]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def __call__(self, data: bytes) -> msgspec.Struct:
        """Return the body. Raises BadRequest naming the field that is unknown or wrong."""
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise explain(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadRequest(
                "We could not parse the JSON body of your request.", code="invalid_json"
            ) from None


def explain(text: str) -> BadRequest:
    """Turn msgspec's words into an error with `param` and `code`."""
    if match := _UNKNOWN.search(text):
        param = _join(match["path"], match["field"])
        return BadRequest(f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)
    if match := _MISSING.search(text):
        param = _join(match["path"], match["field"])
        message = f"Missing required parameter: '{param}'."
        return BadRequest(message, code="missing_required_parameter", param=param)
    match = _AT.search(text)
    param = _join(match["path"], "") if match else ""
    if param.endswith(".type") and "content[" in param:
        message = f"Only text is accepted in '{param.removesuffix('.type')}': no images or files."
        return BadRequest(message, code="invalid_value", param=param)
    reason = _AT.sub("", text)[:FIELD_CHARACTERS_MAX]
    message = f"Invalid value for '{param}': {reason}." if param else f"Invalid body: {reason}."
    return BadRequest(message, code="invalid_value", param=param or None)


def invalid(param: str, wanted: str) -> BadRequest:
    """Return the error for a value that the types alone cannot refuse."""
    return BadRequest(f"Invalid value for '{param}': {wanted}.", code="invalid_value", param=param)


def _join(path: str | None, field: str) -> str:
    whole = f"{path or ''}.{field}" if field else path or ""
    return whole.lstrip(".")[:FIELD_CHARACTERS_MAX]
