"""Money as whole nano-dollars: reading, showing, and the one rounding to cents."""

import re

DOLLAR_NANOS = 1_000_000_000
CENT_NANOS = 10_000_000
NANOS_MAX = 2**63 - 1
SIGNIFICANT_DIGITS = 4
_AMOUNT = re.compile(r"\$?(\d{1,10})(?:\.(\d{1,9}))?", re.ASCII)


def cents(nanos: int) -> int:
    """Return whole cents, rounded once, halves away from zero.

    Worked examples: 4,999,999 nanos are 0 cents, 5,000,000 are 1 cent, 1,234,567,890 are
    123 cents, -5,000,000 are -1 cent.
    """
    rounded = _round_to(abs(nanos), CENT_NANOS) // CENT_NANOS
    return -rounded if nanos < 0 else rounded


def parse_dollars(text: str) -> int:
    """Return the nanos of an amount a person typed, such as `5`, `$0.25` or `0.000000001`.

    Raises ValueError when it is not a plain amount of dollars with at most nine decimals.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount in dollars; wanted such as 5 or 0.25")
    nanos = int(match[1]) * DOLLAR_NANOS + int((match[2] or "").ljust(9, "0"))
    if nanos > NANOS_MAX:
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
