"""PDF by typst, in this process: the template and the fonts are read once, a document is data."""

import json
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import structlog
import typst

from billing.invoicing.models import CreditNote, Invoice
from billing.invoicing.printed import credit_note_printed, invoice_printed
from billing.invoicing.typeset.fonts import families, fonts

HERE = Path(__file__).parent
TEMPLATE = HERE / "document.typ"
Standard = Literal["a-2a", "a-2b", "ua-1"]
READABLE: list[Standard] = ["a-2a", "ua-1"]
ARCHIVABLE: list[Standard] = ["a-2b"]
PLAIN: list[Standard] = []
"""PDF/A with the structure that screen readers follow, PDF/A, and neither."""
ROWS_MAX = 40
"""Structure takes half a kilobyte per cell: longer documents do without, to stay under 100 kB."""

logger = structlog.get_logger(__name__)


def invoice_pdf(invoice: Invoice) -> bytes:
    """Return an invoice as PDF; the same bytes every time."""
    return pdf(invoice_printed(invoice))


def credit_note_pdf(note: CreditNote) -> bytes:
    """Return a credit note as PDF; the same bytes every time."""
    return pdf(credit_note_printed(note))


def pdf(printed: dict[str, Any]) -> bytes:
    """Return what is printed as PDF/A; as plain PDF where no font has its characters, and without
    its logo where that is no picture."""
    rows = sum(len(group["rows"]) for group in printed["groups"])
    no_logo = {**printed, "seller": {**printed["seller"], "logo_svg": ""}}
    for one, standards in (
        (printed, READABLE if rows <= ROWS_MAX else ARCHIVABLE),
        (printed, PLAIN),
    ):
        try:
            return _compile(one, standards)
        except typst.TypstError as error:
            logger.warning("document_set_plainly", number=printed["number"], reason=str(error))
    return _compile(no_logo, PLAIN)


def png(printed: dict[str, Any], *, ppi: float = 110) -> list[bytes]:
    """Return the pages as pictures."""
    pages = _compiler().compile(
        format="png", ppi=ppi, sys_inputs=_inputs(printed), timestamp=_timestamp(printed)
    )
    return pages if isinstance(pages, list) else [pages or b""]


def is_picture(svg: str) -> bool:
    """Tell whether a logo can be set."""
    try:
        typst.compile(
            b'#image(bytes(sys.inputs.svg), format: "svg", height: 9mm)', sys_inputs={"svg": svg}
        )
    except typst.TypstError:
        return False
    return True


def _compile(printed: dict[str, Any], standards: list[Standard]) -> bytes:
    made = _compiler().compile(
        format="pdf",
        sys_inputs=_inputs(printed),
        pdf_standards=cast(Any, standards),
        pdf_tags=standards is READABLE,
        timestamp=_timestamp(printed),
    )
    return cast(bytes, made)


@cache
def _compiler() -> typst.Compiler:
    return typst.Compiler(TEMPLATE, root=HERE, font_paths=fonts())


def _inputs(printed: dict[str, Any]) -> dict[str, str]:
    country = printed["buyer"].get("country", "")
    return {"data": json.dumps({**printed, "families": families(country)})}


def _timestamp(printed: dict[str, Any]) -> int:
    issued = datetime.combine(date.fromisoformat(printed["issued_on"]), time(), UTC)
    return int(issued.timestamp())
