"""The management API's body parser: JSON that PostgreSQL can store as it was sent."""

from collections.abc import Mapping
from typing import IO, Any

import msgspec
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

BODY_BYTES_MAX = 2**20


class TooLarge(APIException):
    """A body is larger than `BODY_BYTES_MAX`."""

    status_code = 413
    default_detail = f"The body is over {BODY_BYTES_MAX} bytes."
    default_code = "request_too_large"


class StrictJSONParser(JSONParser):
    """Rejects JSON that Python's parser accepts but PostgreSQL can't store, such as lone
    surrogates, and JSON that is nested too deep."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the parsed body. Raises ParseError or TooLarge."""
        body = stream.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge
        try:
            return msgspec.json.decode(body)
        except RecursionError:
            raise ParseError("The body is nested too deep.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParseError(f"The body is no JSON: {error}") from error
