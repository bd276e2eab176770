"""What a mail may carry: named when it is decided, made when it is delivered."""

from dataclasses import dataclass

from control.outbox import registry
from control.outbox.errors import GiveUp


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file by what it is and its id, such as `invoice_pdf` and `inv_…`."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is attached; `content_type` such as `application/pdf`."""

    name: str
    content: bytes
    content_type: str


def make(attachment: Attachment) -> File:
    """Return the file. An app names in the ATTACHMENTS of its `deliveries.py` who makes a kind.

    Raises GiveUp where nobody does.
    """
    maker = registry.registered("ATTACHMENTS").get(attachment.kind)
    if maker is None:
        raise GiveUp(f"no app makes the attachment {attachment.kind}")
    file: File = maker(attachment.id)
    return file
