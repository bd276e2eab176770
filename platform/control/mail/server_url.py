"""Parses EMAIL_URL, the setting that selects the mail server.

database:                                   kept here, shown in the admin; nothing leaves
smtp://user:password@host:587              STARTTLS; `?tls=false` only on this machine
smtps://user:password@host:465             TLS from the first byte
anymail+mailgun://KEY@sender.domain        also `?region=eu`
anymail+postmark://TOKEN@                  and so sendgrid, brevo, resend
anymail+ses://?region=eu-central-1         credentials from the machine's own role
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SMTP_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
MAILBOX_BACKEND = "control.mail.backend.MailboxBackend"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
KEYED = {
    "mailgun": "MAILGUN_API_KEY",
    "postmark": "POSTMARK_SERVER_TOKEN",
    "sendgrid": "SENDGRID_API_KEY",
    "brevo": "BREVO_API_KEY",
    "resend": "RESEND_API_KEY",
}
"""Services whose one secret is the user of the URL, with the name of Anymail's setting."""
MAILGUN_APIS = {"us": "https://api.mailgun.net/v3", "eu": "https://api.eu.mailgun.net/v3"}
"""Mailgun's API URLs by region."""
FORMS = "database:, smtp://user:password@host:587, smtps://… or anymail+SERVICE://KEY@"


@dataclass(frozen=True, slots=True)
class MailServer:
    """The mail settings of Django and Anymail, and a name without secrets."""

    backend: str
    shown: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    use_tls: bool = False
    """STARTTLS."""
    use_ssl: bool = False
    """TLS from the first byte."""
    anymail: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_mailbox(self) -> bool:
        """Whether emails stay in the local mailbox."""
        return self.backend == MAILBOX_BACKEND

    @classmethod
    def from_url(cls, value: str) -> "MailServer":
        """Parse a URL. Raises ValueError, whose message repeats nothing secret."""
        if value == "database:":
            return cls(MAILBOX_BACKEND, "the mailbox of this platform")
        parts = _split(value)
        if parts.scheme in ("smtp", "smtps") and parts.hostname:
            return _smtp(parts)
        service = parts.scheme.removeprefix("anymail+")
        if service != parts.scheme:
            return _anymail(service, parts)
        raise ValueError(f"wanted {FORMS}")


def _split(value: str) -> SplitResult:
    """Return the parts of a URL, its port checked. Python's own message about a bad URL may repeat
    a password, such as one with a bare `#`."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError(f"wanted {FORMS}; other characters as %23") from None
    return parts


def _smtp(parts: SplitResult) -> MailServer:
    options = dict(parse_qsl(parts.query))
    wants_tls = options.pop("tls", "true")
    if options or wants_tls not in ("true", "false"):
        raise ValueError("the one option of smtp:// is tls=true or tls=false")
    is_implicit = parts.scheme == "smtps"
    is_plain = wants_tls == "false"
    if is_plain and (is_implicit or (parts.password and parts.hostname not in LOOPBACK)):
        raise ValueError("without TLS a password would be sent in the clear")
    port = parts.port or (465 if is_implicit else 25 if is_plain else 587)
    return MailServer(
        SMTP_BACKEND,
        f"{parts.hostname}:{port}",
        host=parts.hostname or "",
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        use_tls=not is_implicit and not is_plain,
        use_ssl=is_implicit,
    )


def _anymail(service: str, parts: SplitResult) -> MailServer:
    options = dict(parse_qsl(parts.query))
    if service == "ses":
        return _ses(options)
    if service not in KEYED:
        raise ValueError(f"anymail+ knows {', '.join([*KEYED, 'ses'])}")
    if not parts.username:
        raise ValueError(f"the key of {service} is missing: anymail+{service}://KEY@")
    found: dict[str, Any] = {KEYED[service]: unquote(parts.username)}
    if service == "mailgun":
        if parts.hostname:
            found["MAILGUN_SENDER_DOMAIN"] = parts.hostname
        region = options.pop("region", "us")
        if region not in MAILGUN_APIS:
            raise ValueError(f"region is {region!r}; wanted one of {', '.join(MAILGUN_APIS)}")
        found["MAILGUN_API_URL"] = MAILGUN_APIS[region]
    if options:
        raise ValueError(f"{service} has no option {', '.join(options)}")
    return MailServer(f"anymail.backends.{service}.EmailBackend", service, anymail=found)


def _ses(options: dict[str, str]) -> MailServer:
    parameters = {"region_name": options.pop("region")} if "region" in options else {}
    if options:
        raise ValueError(f"ses has no option {', '.join(options)}")
    if find_spec("boto3") is None:
        raise ValueError("Amazon SES needs the package boto3: pip install boto3")
    found = {"AMAZON_SES_CLIENT_PARAMS": parameters}
    return MailServer("anymail.backends.amazon_ses.EmailBackend", "Amazon SES", anymail=found)
