"""Tax numbers, checked by the form that their country gives them; others are taken as they are."""

import re

from stdnum import get_cc_module
from stdnum.eu import vat as eu_vat
from stdnum.exceptions import ValidationError

from billing.invoicing.countries import EUROPEAN_UNION, country_name
from control.errors import InvalidValue

MAX = 40
_PLAIN = re.compile(r"[A-Za-z0-9 .,/&()+-]+")
_PREFIX = {"GR": "EL"}
"""How a country's VAT numbers begin, where not with its code."""


def checked_tax_id(text: str, country: str) -> str:
    """Return a tax number in its compact form; empty for none.

    Raises InvalidValue where the country's form and check digits are known and do not fit.
    """
    text = text.strip()
    if not text:
        return ""
    if len(text) > MAX or not _PLAIN.fullmatch(text):
        raise InvalidValue(f"A tax id has letters and digits, {MAX} at most.", param="tax_id")
    try:
        return _compact(text, country)
    except ValidationError as error:
        message = f"{text!r} is no tax id of {country_name(country)}: check its digits."
        raise InvalidValue(message, param="tax_id") from error


def _compact(text: str, country: str) -> str:
    if country in EUROPEAN_UNION:
        prefix = _PREFIX.get(country, country)
        number = re.sub(r"[\s.,/-]", "", text).upper()
        return str(eu_vat.validate(number if number.startswith(prefix) else prefix + number))
    form = get_cc_module(country.lower(), "vat") if country else None
    return str(form.validate(text)) if form else text
