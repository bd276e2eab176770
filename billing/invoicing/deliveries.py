"""The files that mails of this room carry, made when they are delivered."""

from collections.abc import Callable

from billing.invoicing.selectors import credit_note_by_id, invoice_by_id
from billing.invoicing.typeset.pdf import credit_note_pdf, invoice_pdf
from control.mail.services import File

PDF = "application/pdf"


def invoice_file(invoice_id: str) -> File:
    """Return an invoice as a file. Raises ObjectNotFound."""
    invoice = invoice_by_id(invoice_id)
    return File(f"{invoice.number}.pdf", invoice_pdf(invoice), PDF)


def credit_note_file(note_id: str) -> File:
    """Return a credit note as a file. Raises ObjectNotFound."""
    note = credit_note_by_id(note_id)
    return File(f"{note.number}.pdf", credit_note_pdf(note), PDF)


ATTACHMENTS: dict[str, Callable[[str], File]] = {
    "invoice_pdf": invoice_file,
    "credit_note_pdf": credit_note_file,
}
