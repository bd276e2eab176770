"""What tax comes on top of a top-up: prepaid credit is taxed when it is sold."""

from datetime import UTC, datetime

import structlog

from billing.invoicing.parties import buyer_party, seller_party
from billing.invoicing.selectors import billing_profile, default_legal_entity
from billing.invoicing.tax import Sale, calculator
from control.errors import ServiceError

logger = structlog.get_logger(__name__)


class NoTaxKnown(ServiceError):
    """Whoever knows the tax does not answer: nothing is sold meanwhile."""

    status = 503
    code = "tax_unavailable"

    def __init__(self) -> None:
        super().__init__("The tax on this payment is not known at the moment; try again.")


def tax_on_top_up(organization_id: str, amount_cents: int, *, now: datetime) -> int:
    """Return the tax on credit of `amount_cents`, in cents; none where nobody bills.

    Called outside of any transaction: a calculator may be a service. Raises NoTaxKnown,
    ObjectNotFound.
    """
    profile = billing_profile(organization_id)
    entity = profile.legal_entity or default_legal_entity()
    if entity is None:
        return 0
    sale = Sale(
        organization_id,
        seller_party(entity),
        buyer_party(profile),
        amount_cents,
        now.astimezone(UTC).date(),
    )
    try:
        return calculator(entity.tax_calculator).tax(sale).cents
    except Exception as error:
        logger.exception("tax_unknown", organization_id=organization_id)
        raise NoTaxKnown from error
