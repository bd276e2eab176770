"""What the domain name system says of a domain: asked of the configured servers, else the system's
own."""

import dns.exception
import dns.resolver
from django.conf import settings

from control.errors import InvalidValue

DNS_SECONDS = 4.0


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
