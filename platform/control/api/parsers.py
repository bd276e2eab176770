"""Bodies of the management API: JSON that can be stored as it was sent."""

from collections.abc import Mapping
from typing import IO, Any

import msgspec
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

BODY_BYTES_MAX = 2**20


class TooLarge(APIException):
    """A body of more than `BODY_BYTES_MAX`."""

    status_code = 413
    default_detail = f"The body is over {BODY_BYTES_MAX} bytes."
    default_code = "request_too_large"


class StrictJSONParser(JSONParser):
    """Refuses what Python's own parser takes and PostgreSQL does not, such as halves of surrogate
    pairs, and what is nested too deep for anybody."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body's value. Raises ParseError, and TooLarge."""
        body = stream.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge
        try:
            return msgspec.json.decode(body)
        except RecursionError:
            raise ParseError("The body is nested too deep.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParseError(f"The body is no JSON: {error}") from error
