"""What is written down of each step: a row that is unique, and an audit entry."""

from datetime import datetime

from billing.collection.models import Case, Step
from billing.collection.services.measures import COLLECTION
from control.audit import services as audit
from control.organizations.selectors import organization_name
from control.permissions import Actor


def log_step(
    case: Case,
    name: str,
    outcome: str,
    *,
    due_cents: int,
    now: datetime,
    actor: Actor = COLLECTION,
    reason: str = "",
) -> Step:
    """Write down a step. A second one of the name, for the same invoice and round, is refused by
    the database, and undoes the transaction."""
    step = Step.objects.create(
        organization_id=case.organization_id,
        invoice_id=case.invoice_id,
        round=case.round,
        name=name,
        outcome=outcome,
        due_cents=due_cents,
        reason=reason,
        taken_by=actor.name,
        taken_at=now,
    )
    audit.record(
        actor=actor,
        action=f"collection.{outcome}",
        target_kind="organization",
        target_id=case.organization_id,
        target_name=organization_name(case.organization_id),
        organization_id=case.organization_id,
        details={
            "step": name,
            "invoice_id": case.invoice_id,
            "due_cents": due_cents,
            "reason": reason,
        },
    )
    return step
