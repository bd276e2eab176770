"""Domains of organizations: add, verify by a DNS record, remove."""

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
    """Add an unverified domain. Raises InvalidValue, Conflict for a duplicate or too many."""
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    name = connections.checked_domain(name)
    organization = tenants.locked_organization(organization.id)
    domains = selectors.domains(organization)
    if domains.filter(name=name).exists():
        raise Conflict(f"{name} is already listed.", param="name")
    if domains.count() >= connections.DOMAINS_MAX:
        raise Conflict(
            f"An organization has at most {connections.DOMAINS_MAX} domains.", param="name"
        )
    domain = SsoDomain.objects.create(
        organization=organization, name=name, token=secrets.token_urlsafe(24)
    )
    _record(actor, "sso.domain_added", domain)
    return domain


def verify_domain(*, actor: Actor, organization: Organization, domain_id: str) -> SsoDomain:
    """Verify a domain by the token in its TXT records.

    Raises InvalidValue if the token is missing, Conflict if another organization that verified the
    domain still has its token there.
    """
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    domain = selectors.named_domain(organization, domain_id)
    records = texts(domain.record_name)  # This takes up to seconds, so no transaction is open.
    if domain.record_value not in records:
        raise InvalidValue(_missing_message(domain, records))
    return _mark_verified(actor, organization, domain_id, records)


@transaction.atomic
def _mark_verified(
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
        _record(Actor.for_system("DNS"), "sso.domain_reassigned", holder)
    domain.verified_at = timezone.now()
    try:
        with transaction.atomic():
            domain.save(update_fields=["verified_at"])
    except IntegrityError as error:
        raise Conflict(f"{domain.name} is verified by another organization.") from error
    _record(actor, "sso.domain_verified", domain)
    return domain


@transaction.atomic
def remove_domain(*, actor: Actor, organization: Organization, domain_id: str) -> None:
    """Remove a domain; its addresses can sign in without SSO again.

    Raises Conflict for a verified domain while SSO is enforced.
    """
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    connection = selectors.locked_connection(organization)
    domain = selectors.domain(organization, domain_id)
    if domain.verified_at is not None and connection.is_enforced:
        raise Conflict("SSO is enforced for this domain: make it optional first.")
    _record(actor, "sso.domain_removed", domain)
    domain.delete()


def _missing_message(domain: SsoDomain, records: list[str]) -> str:
    if not records:
        return f"There is no TXT record at {domain.record_name} yet. New ones take up to an hour."
    return f"The TXT record at {domain.record_name} holds something else: {records[0][:80]!r}."


def _record(actor: Actor, action: str, domain: SsoDomain) -> None:
    audit.record_about(actor, action, domain, "domain", domain=domain.name)


def texts(name: str) -> list[str]:
    """Return the TXT records of a name, none if the name does not exist. Raises InvalidValue if no
    name server responds."""
    try:
        answer = _resolver().resolve(name, "TXT", lifetime=DNS_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except (dns.exception.DNSException, OSError) as error:
        raise InvalidValue(f"The DNS lookup of {name} got no answer. Try again.") from error
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def _resolver() -> dns.resolver.Resolver:
    servers = settings.CONFIG.dns_servers
    if not servers:
        return dns.resolver.Resolver()
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [host for host, _ in servers]
    resolver.nameserver_ports = dict(servers)
    return resolver
