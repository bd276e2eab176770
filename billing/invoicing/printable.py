"""What can be printed: refuses a text with characters that no font of documents has, before a
document is final."""

from collections.abc import Mapping
from typing import Any

from billing.invoicing.models import BillingProfile
from billing.invoicing.typeset.fonts import unprintable
from control.errors import InvalidValue

SHOWN_MAX = 10
PROFILE = ("line1", "line2", "postal_code", "city", "region", "purchase_order", "tax_id")
ENTITY = ("name", "address", "region", "tax_ids", "bank_details", "footer")


def require_printable(texts: Mapping[str, str]) -> None:
    """Raise InvalidValue naming the first of the fields that cannot be printed, and its
    characters."""
    if not unprintable(texts.values()):
        return
    for param, text in texts.items():
        if missing := unprintable([text]):
            message = (
                f"{param} has characters that cannot be printed on invoices: {_shown(missing)}."
            )
            raise InvalidValue(f"{message} Leave them out or use other letters.", param=param)


def require_printable_profile(profile: BillingProfile) -> None:
    """Refuse a billing profile that invoices cannot show. Without a legal name they show the
    organization's."""
    if not profile.legal_name and (missing := unprintable([profile.name])):
        raise InvalidValue(
            f"The organization's name has characters that cannot be printed on invoices:"
            f" {_shown(missing)}. Enter a legal name without them.",
            param="legal_name",
        )
    fields = {name: getattr(profile, name) for name in PROFILE}
    require_printable({"legal_name": profile.legal_name, **fields})


def require_printable_entity(values: Mapping[str, Any]) -> None:
    """Refuse fields of a legal entity that documents cannot show."""
    require_printable({name: values[name] for name in ENTITY if name in values})


def _shown(characters: str) -> str:
    more = "" if len(characters) <= SHOWN_MAX else " and others"
    return " ".join(_name(one) for one in characters[:SHOWN_MAX]) + more


def _name(character: str) -> str:
    return f"{character} (U+{ord(character):04X})"
