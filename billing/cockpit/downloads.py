"""Records of the books as files, a page in memory at a time, and the audit event of a download."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.translation import override

from billing.ledger.causes import CHART_OF_ACCOUNTS
from control.admin.base import operator
from control.api.streaming import SignedAmount, csv_bytes, stream_export
from control.audit import services as audit

CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
"""The forms of a file, by the end of its name."""
Records = Iterable[Mapping[str, Any]]


def file_pages(form: str, columns: Sequence[str], pages: Iterable[Records]) -> Iterator[bytes]:
    """Yield records as CSV with a header, or as JSON Lines. Columns that end in `_usd` are exact
    amounts as text, which may be below zero."""
    if form == "jsonl":
        for page in pages:
            yield msgspec.json.Encoder().encode_lines(list(page))
        return
    yield csv_bytes([columns])
    for page in pages:
        yield csv_bytes(
            [SignedAmount(cell) if name.endswith("_usd") else cell for name, cell in each.items()]
            for each in page
        )


def account_names() -> dict[str, tuple[str, str]]:
    """Return the name and class of each account in a file: files are in English."""
    with override(settings.LANGUAGE_CODE):
        return {kind: (str(kind.label), str(of.label)) for kind, of in CHART_OF_ACCOUNTS.items()}


def ledger_file(
    request: HttpRequest, form: str, columns: Sequence[str], pages: Iterable[Records], *,
    report: str, name: str, details: Mapping[str, str],
) -> HttpResponseBase:  # fmt: skip
    """Return a report on all organizations as a file, and record who downloads it."""
    name = f"{name}.{form}"
    chunks = file_pages(form, columns, pages)
    response = stream_export(request, chunks, content_type=CONTENT_TYPES[form], name=name)
    if response.status_code == 200:
        audit.record(
            actor=operator(request),
            action="ledger.exported",
            target_kind="report",
            target_id=report,
            target_name=name,
            details=dict(details),
        )
    return response
