"""Money as whole nano-dollars: reading, showing, and the one rounding to cents."""

import re

DOLLAR_NANOS = 1_000_000_000
CENT_NANOS = 10_000_000
NANOS_MAX = 2**63 - 1
SIGNIFICANT_DIGITS = 4
WHOLE_DIGITS_MAX = 10
DECIMALS_MAX = 9
TYPED_MAX = 64
"""The length of the longest text that is read as an amount."""
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_CURRENCY = r"(?:US\$|\$|USD)?"
_TYPED = re.compile(rf"{_CURRENCY}\s*([0-9][0-9\s.,'\u2019]*?)\s*{_CURRENCY}", re.IGNORECASE)
_GROUPS = re.compile(r"[1-9]\d{0,2}(\D)\d{3}(\1\d{3})*|[1-9]\d?(,\d{2})+,\d{3}", re.ASCII)
"""Groups of three digits with one separator, or as in India: 12,34,567."""


class AmbiguousAmount(ValueError):
    """An amount that people of different countries read differently; `readings` are in nanos."""

    def __init__(self, text: str, readings: tuple[int, int]) -> None:
        one, other = map(exact_dollars, readings)
        super().__init__(f"{text!r} is an ambiguous amount: it could be {one} or {other}")
        self.readings = readings


def cents(nanos: int) -> int:
    """Return whole cents, rounded once, halves away from zero.

    Worked examples: 4,999,999 nanos are 0 cents, 5,000,000 are 1 cent, 1,234,567,890 are
    123 cents, -5,000,000 are -1 cent.
    """
    rounded = _round_to(abs(nanos), CENT_NANOS) // CENT_NANOS
    return -rounded if nanos < 0 else rounded


def parse_dollars(text: str) -> int:
    """Return the nanos of an amount as we print it, or as a person types it with the separators of
    their country where only one reading is possible.

    Worked examples: `$1,000.50`, `1 000,50` with any blank, `1.000,50` and `1'000.50` are 1000.5
    dollars; `1,000` is a thousand, as we print it; `0,5` is half a dollar. `1.000` and `1,5` have
    two readings (`1.234` has one: we print it so, and never a zero in its last place).

    Raises AmbiguousAmount where there are two readings, ValueError for what is no amount of dollars
    with at most nine decimals.
    """
    shown = _INVISIBLE.sub("", text).strip()
    typed = _TYPED.fullmatch(shown) if len(shown) <= TYPED_MAX else None
    readings = _readings(re.sub(r"[\s\u2019]", "'", typed[1])) if typed else []
    if not readings:
        raise ValueError(f"{text!r} is not an amount in dollars; wanted such as 5 or 0.25")
    amounts = [_nanos(text, whole, decimals) for whole, decimals in readings]
    if len(amounts) > 1:
        raise AmbiguousAmount(text, (amounts[0], amounts[1]))
    return amounts[0]


def _readings(number: str) -> list[tuple[str, str]]:
    """Return the ways to read a number, each as its whole digits and its decimals."""
    last = max(number.rfind("."), number.rfind(","))
    whole, mark, decimals = number[:last], number[last : last + 1], number[last + 1 :]
    if last < 0 or number.count(mark) > 1:
        return [(digits, "")] if (digits := _ungrouped(number)) else []
    digits = _ungrouped(whole)
    if not digits or not decimals.isdecimal():
        return []
    as_decimals, as_groups = (digits, decimals), (digits + decimals, "")
    if whole != digits or len(digits) > 3 or digits.startswith("0"):
        return [as_decimals]
    if mark == ",":
        return [as_groups] if len(decimals) == 3 else [as_decimals, as_groups]
    return [as_decimals, as_groups] if re.fullmatch(r"\d\d0", decimals) else [as_decimals]


def _ungrouped(number: str) -> str:
    """Return the digits of a whole number, empty where its separators are no thousands'."""
    is_grouped = _GROUPS.fullmatch(number) is not None
    return re.sub(r"\D", "", number) if is_grouped or number.isdecimal() else ""


def _nanos(text: str, whole: str, decimals: str) -> int:
    if len(decimals) > DECIMALS_MAX:
        raise ValueError(f"{text!r} is not an amount with at most {DECIMALS_MAX} decimals")
    nanos = int(whole) * DOLLAR_NANOS + int(decimals.ljust(DECIMALS_MAX, "0") or 0)
    if len(whole) > WHOLE_DIGITS_MAX or nanos > NANOS_MAX:
        raise ValueError(f"{text!r} is too much; wanted at most {NANOS_MAX} nanos")
    return nanos


def format_dollars(nanos: int) -> str:
    """Return an amount for people: two decimals from a dollar up, four below, and at most four
    significant digits under a cent. Never an exponent.

    Worked examples: 12,300 nanos are `$0.0000123`, 132,000 `$0.000132`, 123,456,789 `$0.1235`,
    500,000,000 `$0.50`, 1,234,567,890,000 `$1,234.57`, 0 `$0.00`, -12,300 `-$0.0000123`.
    """
    return _with_sign(nanos, _decimal(_rounded_for_people(abs(nanos))))


def exact_dollars(nanos: int) -> str:
    """Return the whole amount, no digit rounded away: 1,234,567,890 nanos are `$1.23456789`."""
    return _with_sign(nanos, _decimal(abs(nanos)))


def _rounded_for_people(amount: int) -> int:
    if amount >= DOLLAR_NANOS:
        return _round_to(amount, CENT_NANOS)
    if amount >= CENT_NANOS:
        return _round_to(amount, CENT_NANOS // 100)
    return _round_to(amount, 10 ** max(len(str(amount)) - SIGNIFICANT_DIGITS, 0))


def _round_to(amount: int, unit: int) -> int:
    return (amount + unit // 2) // unit * unit


def _decimal(amount: int) -> str:
    whole, part = divmod(amount, DOLLAR_NANOS)
    decimals = str(part).rjust(9, "0").rstrip("0").ljust(2, "0")
    return f"${whole:,}.{decimals}"


def _with_sign(amount: int, text: str) -> str:
    return f"-{text}" if amount < 0 else text
