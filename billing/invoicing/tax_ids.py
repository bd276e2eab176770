"""Tax ids, checked by their country's form and check digits and kept as the country writes them;
those of countries whose form is not known are kept as they are."""

import re
import unicodedata
from typing import Any

from stdnum import get_cc_module
from stdnum.eu import vat as eu_vat
from stdnum.exceptions import InvalidFormat, ValidationError
from stdnum.jp import cn
from stdnum.us import ein

from billing.invoicing.countries import EUROPEAN_UNION, country_name
from control.errors import InvalidValue

MAX = 40
_PLAIN = re.compile(r"[^\W_](?:[^\W_]|[ .,/&()+-])*")
_BETWEEN = re.compile(r"[\s.,/()-]")
_JAPAN = re.compile(r"T[0-9]{13}")
_PREFIX = {"GR": "EL"}
"""How a country's VAT ids begin in the European Union, where not with its code."""
_UNSPACED = frozenset({"MX"})
"""Countries that write without the spaces that stdnum sets."""
_FORMS = {"JP": "T and 13 digits, or a corporate number of 13 digits", "US": "an EIN: 12-3456789"}


def checked_tax_id(text: str, country: str) -> str:
    """Return a tax id as its country writes it, a prefix such as `GB` kept; empty for none.

    Raises InvalidValue where the country's form and check digits are known and do not fit.
    """
    text = unicodedata.normalize("NFKC", text).strip()
    if not text:
        return ""
    if len(text) > MAX or not _PLAIN.fullmatch(text):
        raise InvalidValue(f"A tax ID has letters and digits, {MAX} at most.", param="tax_id")
    try:
        return _written(text, country)
    except ValidationError as error:
        wanted = f"wanted {_FORMS[country]}" if country in _FORMS else "check its digits"
        message = f"{text} is not a tax ID of {country_name(country)}: {wanted}."
        raise InvalidValue(message, param="tax_id") from error


def _written(text: str, country: str) -> str:
    bare = _BETWEEN.sub("", text).upper()
    if country in EUROPEAN_UNION:
        prefix = _PREFIX.get(country, country)
        number = re.sub(f"^(?:{prefix}|{country})", "", bare)
        return str(eu_vat.validate(prefix + number))
    if country == "JP":
        return _japanese(bare)
    form = ein if country == "US" else get_cc_module(country.lower(), "vat") if country else None
    return _by_form(form, text, bare, country) if form else text


def _japanese(bare: str) -> str:
    """Return a registration number of the invoice system, or a corporate number."""
    if bare.startswith("T"):
        if not _JAPAN.fullmatch(bare):
            raise InvalidFormat
        return bare
    return str(cn.validate(bare))


def _by_form(form: Any, text: str, bare: str, country: str) -> str:
    number = str(form.validate(text))
    has_format = hasattr(form, "format") and country not in _UNSPACED
    written = str(form.format(number)) if has_format else number
    prefix = bare.removesuffix(_BETWEEN.sub("", number))
    if not prefix.isalpha() or written.startswith(prefix):
        return written
    return f"{prefix} {written}" if has_format else f"{prefix}{written}"
