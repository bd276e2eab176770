"""Domains of organizations, verified by a DNS record."""

import secrets

import dns.exception
import dns.resolver
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.organizations import selectors as tenants
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require
from control.sso import connections, selectors
from control.sso.models import SsoDomain

DNS_SECONDS = 4.0


@transaction.atomic
def add_domain(*, actor: Actor, organization: Organization, name: str) -> SsoDomain:
    """Name a domain, to be proved by DNS. Raises Conflict for one that was named already."""
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    name = connections.checked_domain(name)
    organization = tenants.locked_organization(organization.id)
    mine = selectors.domains(organization)
    if mine.filter(name=name).exists():
        raise Conflict(f"{name} is here already.", param="name")
    if mine.count() >= connections.DOMAINS_MAX:
        raise Conflict(
            f"An organization has at most {connections.DOMAINS_MAX} domains.", param="name"
        )
    domain = SsoDomain.objects.create(
        organization=organization, name=name, token=secrets.token_urlsafe(24)
    )
    _record(actor, "sso.add_ssodomain", domain)
    return domain


def verify_domain(*, actor: Actor, organization: Organization, domain_id: str) -> SsoDomain:
    """Look for the token in the domain's DNS and take it for proved where it is there.

    Raises InvalidValue where it is not, Conflict where another organization's is there too.
    """
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    domain = selectors.named_domain(organization, domain_id)
    found = texts(domain.record_name)  # up to seconds, so before the transaction
    if domain.record_value not in found:
        raise InvalidValue(_missing(domain, found))
    return _take(actor, organization, domain_id, found)


@transaction.atomic
def _take(
    actor: Actor, organization: Organization, domain_id: str, records: list[str]
) -> SsoDomain:
    domain = selectors.domain(organization, domain_id)
    if domain.verified_at is not None:
        return domain
    holder = selectors.token_owner(domain.name)
    if holder is not None and holder.record_value in records:
        raise Conflict(f"{domain.name} is verified by another organization.")
    if holder is not None:
        holder.verified_at = None
        holder.save(update_fields=["verified_at"])
        _record(Actor.for_system("DNS"), "sso.lose_domain", holder)
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
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    connection = selectors.locked_connection(organization)
    domain = selectors.domain(organization, domain_id)
    if domain.verified_at is not None and connection.is_enforced:
        raise Conflict("SSO is enforced for this domain: make it optional first.")
    _record(actor, "sso.remove_domain", domain)
    domain.delete()


def _missing(domain: SsoDomain, found: list[str]) -> str:
    if not found:
        return f"There is no TXT record at {domain.record_name} yet. New ones take up to an hour."
    return f"The TXT record at {domain.record_name} holds something else: {found[0][:80]!r}."


def _record(actor: Actor, action: str, domain: SsoDomain) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="domain",
        target_id=domain.id,
        organization_id=domain.organization_id,
        details={"domain": domain.name},
    )


def texts(name: str) -> list[str]:
    """Return the TXT records of a name, none where there is no such name. Raises InvalidValue where
    no server answers."""
    try:
        answer = _resolver().resolve(name, "TXT", lifetime=DNS_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except (dns.exception.DNSException, OSError) as error:
        raise InvalidValue(
            f"The domain name system gave no answer for {name}. Try again."
        ) from error
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def _resolver() -> dns.resolver.Resolver:
    servers = settings.CONFIG.dns_servers
    if not servers:
        return dns.resolver.Resolver()
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [host for host, _ in servers]
    resolver.nameserver_ports = dict(servers)
    return resolver
