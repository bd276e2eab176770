"""Proving that a domain is an organization's own. DNS has the last word: whose record is there no
more loses the domain to who proves it next."""

import secrets

from django.db import IntegrityError, transaction
from django.utils import timezone

from control.actor import Actor, system
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.sso import checks, dns, selectors
from control.sso.models import Domain
from control.tenants import selectors as tenants
from control.tenants.models import Organization
from control.tenants.permissions import Action, require


@transaction.atomic
def add_domain(*, actor: Actor, organization: Organization, name: str) -> Domain:
    """Name a domain, to be proved by DNS. Raises Conflict for one that was named already."""
    require(actor, organization, Action.MANAGE_MEMBERS)
    name = checks.domain(name)
    organization = tenants.locked_organization(organization.id)
    mine = selectors.domains(organization)
    if mine.filter(name=name).exists():
        raise Conflict(f"{name} is here already.", param="name")
    if mine.count() >= checks.DOMAINS_MAX:
        raise Conflict(f"An organization has at most {checks.DOMAINS_MAX} domains.", param="name")
    domain = Domain.objects.create(
        organization=organization, name=name, token=secrets.token_urlsafe(24)
    )
    _record(actor, "sso.add_domain", domain)
    return domain


def verify_domain(*, actor: Actor, organization: Organization, domain_id: str) -> Domain:
    """Look for the token in the domain's DNS and take it for proved where it is there.

    Raises InvalidValue where it is not, Conflict where another organization's is there too.
    """
    require(actor, organization, Action.MANAGE_MEMBERS)
    domain = selectors.named_domain(organization, domain_id)
    found = dns.texts(domain.record_name)  # up to seconds, so before the transaction
    if domain.record_value not in found:
        raise InvalidValue(_missing(domain, found))
    return _take(actor, organization, domain_id, found)


@transaction.atomic
def _take(actor: Actor, organization: Organization, domain_id: str, records: list[str]) -> Domain:
    domain = selectors.domain(organization, domain_id)
    if domain.verified_at is not None:
        return domain
    holder = selectors.holder(domain.name)
    if holder is not None and holder.record_value in records:
        raise Conflict(f"{domain.name} is verified by another organization.")
    if holder is not None:
        holder.verified_at = None
        holder.save(update_fields=["verified_at"])
        _record(system("DNS"), "sso.lose_domain", holder)
    domain.verified_at = timezone.now()
    try:
        with transaction.atomic():
            domain.save(update_fields=["verified_at"])
    except IntegrityError as error:
        raise Conflict(f"{domain.name} is verified by another organization.") from error
    _record(actor, "sso.verify_domain", domain)
    return domain


@transaction.atomic
def remove_domain(*, actor: Actor, organization: Organization, domain_id: str) -> None:
    """Give a domain up: its addresses sign in by other ways again.

    Raises Conflict for a verified one while sign-in by the provider is enforced.
    """
    require(actor, organization, Action.MANAGE_MEMBERS)
    connection = selectors.locked_connection(organization)
    domain = selectors.domain(organization, domain_id)
    if domain.verified_at is not None and connection.is_enforced:
        raise Conflict("SSO is enforced for this domain: make it optional first.")
    _record(actor, "sso.remove_domain", domain)
    domain.delete()


def _missing(domain: Domain, found: list[str]) -> str:
    if not found:
        return f"There is no TXT record at {domain.record_name} yet. New ones take up to an hour."
    return f"The TXT record at {domain.record_name} holds something else: {found[0][:80]!r}."


def _record(actor: Actor, action: str, domain: Domain) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="domain",
        target_id=domain.id,
        organization_id=domain.organization_id,
        details={"domain": domain.name},
    )
