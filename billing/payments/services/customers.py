"""An organization as Stripe's customer: its row first, Stripe's id with the answer."""

from datetime import datetime

import structlog

from billing.payments.errors import NotThere, StripeRefused
from billing.payments.models import StripeCustomer
from billing.payments.models.customers import NAME_MAX
from billing.payments.selectors import customer
from billing.payments.stripe_api import StripeApi, stripe_api
from control.db.models import new_id
from control.organizations.selectors import organizations

logger = structlog.get_logger(__name__)


def ensure_customer(organization_id: str, *, now: datetime) -> str:
    """Return Stripe's id of an organization, making the customer at the first time; one that was
    renamed since is renamed there too.

    Called outside of any transaction. Raises StripeAway, StripeRefused.
    """
    api = stripe_api()
    name = organizations().get(pk=organization_id).name[:NAME_MAX]
    row = customer(organization_id, api.keys.mode)
    if row is None:
        row, _ = StripeCustomer.objects.get_or_create(
            organization_id=organization_id,
            mode=api.keys.mode,
            defaults={"created_at": now, "name": name},
        )
    stripe_id = row.stripe_id or _make(api, row, name)
    if row.name != name:
        _rename(api, row, stripe_id, name)
    return stripe_id


def _make(api: StripeApi, row: StripeCustomer, name: str) -> str:
    """Ask for the customer by the row alone: Stripe refuses a key that comes with something else,
    and an organization may be renamed between two questions."""
    row.name = row.name or name
    made = api.create_customer(
        {"name": row.name, "metadata": {"penstock_organization": row.organization_id}},
        key=f"customer:{row.organization_id}:{row.pk}",
    )
    rows = StripeCustomer.objects.filter(pk=row.pk, stripe_id__isnull=True)
    rows.update(stripe_id=made.id, name=row.name)
    return made.id


def _rename(api: StripeApi, row: StripeCustomer, stripe_id: str, name: str) -> None:
    """Nobody's payment fails because a name does not please Stripe."""
    try:
        # Said twice it is the same: each saying may have a key of its own.
        api.rename_customer(stripe_id, name, key=f"rename:{new_id('name')}")
    except (StripeRefused, NotThere) as refused:
        owner = row.organization_id
        logger.warning("customer_not_renamed", organization_id=owner, why=str(refused))
        return
    StripeCustomer.objects.filter(pk=row.pk).update(name=name)
