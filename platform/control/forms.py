"""Validation that forms of the admin, the console and the API share."""

from django.core.exceptions import ValidationError
from django.utils.translation import gettext

from serving.contract.money import AmbiguousAmount, exact_dollars, parse_dollars

REASON_MAX = 200
"""Characters of a reason that an operator gives."""


def clean_dollars(text: str) -> int:
    """Return the nano-dollars of an amount that a person typed. Raises ValidationError."""
    try:
        return parse_dollars(text)
    except AmbiguousAmount as error:
        one, other = map(exact_dollars, error.readings)
        words = gettext("“%(text)s” could be %(one)s or %(other)s. Enter the one that you mean.")
        raise ValidationError(words % {"text": text, "one": one, "other": other}) from error
    except ValueError as error:
        words = gettext(
            "“%(text)s” is not an amount in dollars. Enter an amount such as 5 or 0.25."
        )
        raise ValidationError(words % {"text": text}) from error
