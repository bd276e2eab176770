"""What does not fit between Stripe and our books: noted once, closed by itself or by people
(`unmatched.py`)."""

from collections.abc import Collection
from datetime import datetime

from billing.payments.models import Gap, GapKind
from control.alarms.count import raise_alarm_on_commit
from control.audit import services as audit
from control.permissions import Actor

WORDS_MAX = 500


def open_gap(
    *,
    kind: GapKind,
    reference: str,
    mode: str,
    organization_id: str,
    amount_cents: int,
    currency: str,
    words: str,
    now: datetime,
) -> Gap:
    """Note what does not fit; a repeat keeps the first note, and one that people closed stays so.

    One that closed by itself opens again.
    """
    gap, is_new = Gap.objects.get_or_create(
        kind=kind,
        reference=reference,
        defaults={
            "mode": mode,
            "organization_id": organization_id,
            "amount_cents": amount_cents,
            "currency": currency[:3],
            "words": words[:WORDS_MAX],
            "seen_at": now,
        },
    )
    if is_new:
        raise_alarm_on_commit(organization_id, "payment_gap", now=now)
    if not is_new and gap.closed_at is not None and gap.closed_by == "":
        gap.closed_at, gap.closed_because, gap.words = None, "", words[:WORDS_MAX]
        gap.save(update_fields=["closed_at", "closed_because", "words"])
    return gap


def close_fitting(references: Collection[str], *, now: datetime) -> None:
    """Close the gaps of what was looked at again and fits by now."""
    for gap in Gap.objects.filter(closed_at__isnull=True, reference__in=references):
        close(gap, "", "It fits by now", now, Actor.for_system("reconciliation"))


def close(gap: Gap, by: str, because: str, now: datetime, actor: Actor) -> Gap:
    """Close a gap that the caller has locked, or that fits; `by` is nobody then."""
    gap.closed_at, gap.closed_by, gap.closed_because = now, by, because[:200]
    gap.save()
    audit.record(
        actor=actor,
        action="gap.close",
        target_kind="payments_gap",
        target_id=str(gap.pk),
        target_name=str(gap),
        organization_id=gap.organization_id,
        details={"kind": gap.kind, "reference": gap.reference, "because": because},
    )
    return gap
