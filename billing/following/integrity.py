"""All checks of the house together, on one snapshot of the database, which nothing waits for: they
only read, so that their transaction has no id."""

from datetime import date, datetime
from importlib import import_module

import structlog
from django.apps import apps
from django.db import connection, transaction
from django.db.models import F

from billing.credit import integrity as credit
from billing.following.checks import BOOK_CHECKS
from billing.following.models import Proof
from billing.following.open_usage import check_usage
from billing.following.sealing import PATIENTLY, digests
from billing.following.span import span, usage_of_span
from billing.ledger import integrity as ledger
from billing.ledger.integrity import SHOWN_MAX, Check, Finding, run
from billing.metering.models import Day
from control.alarms.count import OPERATOR, raise_alarms

HASH_AGAIN = f"""
/* Organizations whose rows of a day are not those that were sealed. */
SELECT organization_id FROM ({digests(usage_of_span("following_record"))}) AS hashed
FULL JOIN (
    SELECT organization_id, rows_digest AS sealed FROM following_seal WHERE day_id = %(first)s
) AS seal USING (organization_id)
WHERE rows_digest IS DISTINCT FROM sealed
"""  # noqa: S608 -- constants of this room

logger = structlog.get_logger(__name__)


def check_all() -> list[Finding]:
    """Run every check, one sealed day's digests included."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if is_outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(PATIENTLY)
        findings = [run(check) for check in (*ledger.CHECKS, *credit.CHECKS)]
        of_usage, charges = check_usage()
        findings += of_usage
        findings += [run(check, charges) for check in BOOK_CHECKS]
        findings += [run(check) for check in checks_above()]
        day = next_to_hash()
        return [*findings, *([hash_again(day)] if day else [])]


def checks_above() -> list[Check]:
    """Return the checks of the rooms above, which their apps name: `checks` is a module."""
    named = (getattr(app, "checks", None) for app in apps.get_app_configs())
    return [check for name in named if name for check in import_module(name).CHECKS]


def check_and_tell(*, now: datetime) -> list[Finding]:
    """Run every check; keep how many failed, with an alarm for each, and which day was hashed."""
    day = next_to_hash()
    findings = check_all()
    if day is not None:
        Day.objects.filter(day=day).update(checked_at=now)
    failed = [finding for finding in findings if not finding.holds]
    for finding in failed:
        logger.error("check_failed", sentence=finding.sentence, examples=finding.shown)
    Proof.objects.create(made_at=now, check_count=len(findings), failed_count=len(failed))
    raise_alarms({(OPERATOR, "check_failed"): len(failed)}, now=now)
    return findings


def next_to_hash() -> date | None:
    """Return the sealed day that was not hashed for longest; its rows are in the database."""
    sealed = Day.objects.filter(sealed_at__isnull=False, archived_at__isnull=True)
    in_turn = sealed.order_by(F("checked_at").asc(nulls_first=True), "day")
    return in_turn.values_list("day", flat=True).first()


def hash_again(day: date) -> Finding:
    """Compare the digests of a sealed day's rows with its seals."""
    with connection.cursor() as cursor:
        cursor.execute(HASH_AGAIN, span(day, day).parameters)
        wrong = [f"day={day}, organization_id={row[0]}" for row in cursor.fetchall()]
    sentence = "The rows of a sealed day are those that were sealed"
    return Finding(sentence, len(wrong), tuple(wrong[:SHOWN_MAX]))
