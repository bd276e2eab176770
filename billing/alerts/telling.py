"""Telling what was raised, in the transaction that raised it.

Where one look raises several rules of one budget, the gravest alone is told; the others count as
told with it. What cannot be told is as if it were not raised: the next look finds it again, and
nobody else's alert waits for it.
"""

from collections.abc import Mapping
from datetime import datetime

import structlog
from django.db import transaction

from billing.alerts import looking
from billing.alerts.looking import Raised, gravest
from billing.alerts.models import Alert
from billing.alerts.opening import open_soft_budgets
from billing.alerts.recipients import recipients
from billing.alerts.selectors import runway_days
from billing.alerts.wording import context_of, reached_percent, subject_of
from control.limits.spending import owner_names, soft_limit_ids
from control.mail.services import absolute, send_mail
from control.webhooks.services import send_event
from serving.contract.budget import kind_of, limited_id

TEMPLATES = {
    "spending_limit.reached": "budget_reached",
    "balance.low": "balance_low",
    "spending.unusual": "spend_unusual",
    "credit.expiring": "credit_expiring",
}

logger = structlog.get_logger(__name__)


def look(*, now: datetime) -> int:
    """Tell what budgets and balances came to, and what credit expires soon; return how many alerts
    were told."""
    open_soft_budgets(now=now)
    looks = (looking.reached, looking.low, looking.expiring)
    return sum(tell_all(find, now=now) for find in looks)


def look_for_unusual(*, now: datetime) -> int:
    """Tell whose spending of today is far above the usual; return how many alerts were told."""
    return tell_all(looking.unusual, now=now)


def tell_all(find: looking.Look, *, now: datetime) -> int:
    """Raise what `find` finds, and tell each organization; return how many alerts were told.

    So many budgets are a transaction: however many there are, none is long, and what cannot be
    told of some is in no other's way.
    """
    told_count, last = _tell_page(find, "", now)
    while last:
        count, last = _tell_page(find, last, now)
        told_count += count
    return told_count


@transaction.atomic
def _tell_page(find: looking.Look, after: str, now: datetime) -> tuple[int, str]:
    """Tell of the next budgets; return how many alerts were told, and the last budget of all that
    were raised."""
    raised = find(now, after)
    chosen = gravest(raised)
    passed_over = {one.id for one in raised} - {one.id for one in chosen}
    Alert.objects.filter(id__in=passed_over).update(is_told=False)
    limited = {limited_id(one.budget_id) for one in chosen}
    names = owner_names({one.organization_id for one in chosen} | limited)
    soft = soft_limit_ids({one.budget_id for one in chosen})
    count = sum(_told(one, names, one.budget_id not in soft, now) for one in chosen)
    return count, raised[-1].budget_id if raised else ""


def _told(one: Raised, names: Mapping[str, str], is_hard: bool, now: datetime) -> bool:
    try:
        with transaction.atomic():
            tell(one, names=names, is_hard=is_hard, now=now)
    except Exception:
        logger.exception("alert_not_told", alert_id=one.id, kind=one.kind)
        Alert.objects.filter(id=one.id).delete()
        return False
    return True


def tell(one: Raised, *, names: Mapping[str, str], is_hard: bool, now: datetime) -> None:
    """Mail one alert to whoever looks after the organization's money, and send its webhook. `names`
    are of the organization and of who is limited, by id."""
    key, reached = f"alert:{one.id}", reached_percent(one.figures)
    pace = one.figures.get("nanos_per_day")
    days = runway_days(one.organization_id, pace, now) if pace else None
    is_limit = kind_of(one.budget_id) not in {None, "balance"}
    page = f"spending-limits/{one.budget_id}" if is_limit else "billing"
    link = absolute(f"/{one.organization_id}/{page}")
    send_mail(
        template=TEMPLATES[one.kind],
        to=recipients(one.organization_id),
        context=context_of(one, names=names, link=link, is_hard=is_hard, days=days),
        key=key,
        organization_id=one.organization_id,
        now=now,
    )
    send_event(
        organization_id=one.organization_id,
        event_type=one.kind,
        data={
            "spending_limit_id": one.budget_id,
            "subject": subject_of(one, names),
            "rule": one.rule,
            "period_starts_at": one.starts_at.isoformat(),
            **one.figures,
            **({} if reached is None else {"spent_percent": reached}),
        },
        key=key,
        now=now,
    )
