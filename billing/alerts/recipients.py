"""Who hears of an organization's money: its owners, admins and billing members, and whom its
billing profile names."""

from billing.invoicing.selectors import billing_profile
from control.organizations.selectors import notification_recipients


def recipients(organization_id: str) -> list[str]:
    """Return the addresses, each once however it is written."""
    found = [
        *notification_recipients(organization_id),
        *billing_profile(organization_id).recipients,
    ]
    return sorted({address.casefold(): address for address in reversed(found)}.values())
