"""Sign-in by a provider ends with its organization, in its transaction: its domains are anybody's
who proves them, and nobody comes or goes by its SCIM."""

from datetime import datetime
from typing import Any

from control.feed.services import FeedRef
from control.sso import selectors
from control.sso.models import Connection, Domain, Identity, ScimAccess, ScimGroup, ScimUser
from control.tenants.models import Organization
from control.tenants.signals import Consequence, organization_end_asked, organization_ended

OF_ORGANIZATIONS = (Connection, Domain, Identity, ScimAccess, ScimGroup, ScimUser)


def listen() -> None:
    """End sign-in from now on."""
    organization_end_asked.connect(_on_end_asked, dispatch_uid="control.sso.ending.asked")
    organization_ended.connect(_on_end, dispatch_uid="control.sso.ending")


def _on_end_asked(sender: object, organization: Organization, **_: Any) -> list[Consequence]:
    found = []
    if selectors.connection(organization).is_set_up:
        found.append(Consequence("Nobody signs in by your provider any more."))
    if selectors.scim_access(organization) is not None:
        found.append(Consequence("The SCIM token opens nothing any more."))
    return found


def _on_end(sender: object, organization: Organization, now: datetime, **_: Any) -> list[FeedRef]:
    for model in OF_ORGANIZATIONS:
        model._default_manager.filter(organization=organization).delete()
    return []
