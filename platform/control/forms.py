"""Validation that forms of the admin, the console and the API share."""

from django.core.exceptions import ValidationError
from django.utils.translation import gettext

from serving.contract.money import parse_dollars

REASON_MAX = 200
"""Characters of a reason that an operator gives."""


def clean_dollars(text: str) -> int:
    """Return the nano-dollars of an amount that a person typed. Raises ValidationError."""
    try:
        return parse_dollars(text)
    except ValueError as error:
        words = gettext(
            "“%(text)s” is not an amount in dollars. Enter an amount such as 5 or 0.25."
        )
        raise ValidationError(words % {"text": text}) from error
