"""Questions about closing months: who is still to be invoiced, and how far each close came."""

from datetime import timedelta

from django.db import connection
from django.db.models import QuerySet

from billing.following.span import sealed_through
from billing.invoicing.models import Close, CloseFailure
from billing.invoicing.periods import Period
from serving.contract.money import CENT_NANOS

BEHIND = """
/* Organizations whose invoices do not stand as their receivable does. */
WITH settled AS (
    SELECT account.organization_id, -sum(entry.nanos) AS nanos
    FROM ledger_account AS account JOIN ledger_entry AS entry ON entry.account_id = account.id
    JOIN ledger_transaction AS posted ON posted.id = entry.transaction_id
    WHERE account.kind = 'accounts_receivable' AND posted.kind NOT IN ('usage', 'rounding', 'tax')
    GROUP BY 1
), allotted AS (
    SELECT organization_id, sum(nanos) AS nanos FROM invoicing_invoice_payment GROUP BY 1
), invoiced AS (
    SELECT organization_id, sum(total_cents) * %s AS nanos FROM invoicing_invoice GROUP BY 1
)
SELECT organization_id FROM invoiced LEFT JOIN settled USING (organization_id)
LEFT JOIN allotted USING (organization_id)
WHERE least(coalesce(settled.nanos, 0), invoiced.nanos) <> coalesce(allotted.nanos, 0)
ORDER BY organization_id
"""
UNINVOICED = """
/* Organizations with charges in a month of the books and no invoice of it. */
SELECT organization_id FROM (
    SELECT organization_id FROM following_seal WHERE day_id BETWEEN %(first)s AND %(last)s
        AND input_nanos + cached_input_nanos + output_nanos > 0 {of_one}
    {unsealed}
) AS charged
WHERE NOT EXISTS (
    SELECT FROM invoicing_invoice AS invoice
    WHERE invoice.organization_id = charged.organization_id AND invoice.starts_on = %(first)s
)
GROUP BY organization_id ORDER BY organization_id
"""
UNSEALED = """
    UNION ALL
    SELECT organization_id FROM following_hour_rollup
    WHERE accounted_on BETWEEN %(unsealed_from)s AND %(last)s
        AND input_nanos + cached_input_nanos + output_nanos > 0 {of_one}
"""
"""Days that are not sealed yet: a month is closed once its usage is followed, which is before."""
OF_ONE = "AND organization_id = %(organization_id)s"


def organizations_behind() -> list[str]:
    """Return the organizations whose invoices are to be settled, or opened again."""
    with connection.cursor() as cursor:
        cursor.execute(BEHIND, [CENT_NANOS])
        return [row[0] for row in cursor.fetchall()]


def uninvoiced(period: Period, organization_id: str | None = None) -> list[str]:
    """Return the organizations that were charged for a month and have no invoice of it yet.

    Sealed days are read from their seals, one row per organization and day; of a month that is
    sealed, no rollup is read, but of one organization, whose hours are few.
    """
    before = period.starts_on - timedelta(days=1)
    sealed = None if organization_id else sealed_through()
    unsealed_from = max(sealed or before, before) + timedelta(days=1)
    of_one = OF_ONE if organization_id else ""
    unsealed = UNSEALED.format(of_one=of_one) if unsealed_from <= period.last_day else ""
    values = {
        "first": period.starts_on,
        "last": period.last_day,
        "unsealed_from": unsealed_from,
        "organization_id": organization_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(UNINVOICED.format(of_one=of_one, unsealed=unsealed), values)
        return [row[0] for row in cursor.fetchall()]


def earlier_uninvoiced(organization_id: str, period: Period) -> Period | None:
    """Return a month whose close was begun before, and that an organization has no invoice of."""
    begun = Close.objects.filter(starts_on__lt=period.starts_on, finished_at__isnull=True)
    for starts_on in begun.order_by("starts_on").values_list("starts_on", flat=True):
        if uninvoiced(Period(starts_on), organization_id):
            return Period(starts_on)
    return None


def skipped_before(period: Period) -> Period | None:
    """Return the month before if its close was never begun, though an earlier one's was."""
    begun = Close.objects.filter(starts_on__lt=period.starts_on)
    before = period.before
    if not begun.exists() or begun.filter(starts_on=before.starts_on).exists():
        return None
    return before


def unfinished_closes() -> list[Period]:
    """Return the months whose close was begun and is not finished, oldest first."""
    rows = Close.objects.filter(finished_at__isnull=True).order_by("starts_on")
    return [Period(starts_on) for starts_on in rows.values_list("starts_on", flat=True)]


def newest_begun() -> Period | None:
    """Return the newest month whose close was begun."""
    newest = Close.objects.order_by("-starts_on").first()
    return Period(newest.starts_on) if newest else None


def close_of(period: Period) -> Close | None:
    """Return how far the close of a month came; None where it was never begun."""
    return Close.objects.filter(starts_on=period.starts_on).first()


def failures(period: Period) -> QuerySet[CloseFailure]:
    """Return why organizations have no invoice of a month."""
    return CloseFailure.objects.filter(close_id=period.starts_on).order_by("organization_id")
