"""Where mail goes is one address, and a bad one is refused without showing its secret."""

import os
import traceback

import pytest

from control.config import ControlConfig
from control.mail.server_url import MAILBOX_BACKEND, SMTP_BACKEND, MailServer
from serving.contract.environment import ConfigError

pytestmark = pytest.mark.unit


def test_without_an_address_mails_stay_here() -> None:
    config = ControlConfig.from_environment({**os.environ, "EMAIL_URL": ""})
    assert config.mail_server.backend == MAILBOX_BACKEND
    assert config.from_email == "Penstock <noreply@127.0.0.1>"


@pytest.mark.parametrize(
    ("url", "port", "use_tls", "use_ssl"),
    [
        ("smtp://u:p%40ss@mail.example:2525?tls=true", 2525, True, False),
        ("smtp://u:p%40ss@mail.example", 587, True, False),
        ("smtps://u:p%40ss@mail.example", 465, False, True),
        ("smtp://u:p%40ss@127.0.0.1?tls=false", 25, False, False),
    ],
)
def test_smtp(url: str, port: int, use_tls: bool, use_ssl: bool) -> None:
    server = MailServer.from_url(url)
    assert server.backend == SMTP_BACKEND
    assert (server.user, server.password) == ("u", "p@ss")
    assert (server.port, server.use_tls, server.use_ssl) == (port, use_tls, use_ssl)
    assert "p@ss" not in repr(server)


@pytest.mark.parametrize(
    ("url", "backend", "settings"),
    [
        ("anymail+postmark://t0ken@", "postmark", {"POSTMARK_SERVER_TOKEN": "t0ken"}),
        ("anymail+sendgrid://k%2Fy@", "sendgrid", {"SENDGRID_API_KEY": "k/y"}),
        (
            "anymail+mailgun://k@mg.example?region=eu",
            "mailgun",
            {
                "MAILGUN_API_KEY": "k",
                "MAILGUN_SENDER_DOMAIN": "mg.example",
                "MAILGUN_API_URL": "https://api.eu.mailgun.net/v3",
            },
        ),
    ],
)
def test_mail_services(url: str, backend: str, settings: dict[str, str]) -> None:
    server = MailServer.from_url(url)
    assert server.backend == f"anymail.backends.{backend}.EmailBackend"
    assert server.anymail == settings
    __import__(server.backend.rpartition(".")[0])  # it exists


@pytest.mark.parametrize(
    "url",
    [
        "mail.example",
        "smtp://",
        "smtp://u:s3cret@mail.example?tls=false",
        "smtp://u:s3cret@mail.example?tls=maybe",
        "smtp://u:s3cret@mail.example?starttls=1",
        "smtps://u:s3cret@mail.example?tls=false",
        "smtp://u:s3cret@mail.example:port",
        "smtp://u:s3cret@mail.example:99999",
        "smtp://u:s3cret#@mail.example:587",
        "smtp://u:s3cret/@mail.example:587",
        "smtp://u:s3cret@[::1",
        "smtp://u:s3cret\u2100@mail.example",
        "anymail+mailgun://s3cret@mg.example?region=asia",
        "anymail+ses://?color=blue",
        "anymail+postmark://",
        "anymail+pigeon://s3cret@",
        "anymail+postmark://s3cret@?color=blue",
        "https://s3cret@mail.example",
    ],
)
def test_what_does_not_fit_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^EMAIL_URL does not fit") as error:
        ControlConfig.from_environment({**os.environ, "EMAIL_URL": url})
    assert "s3cret" not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("value", ["Penstock", "a\nBcc: b@example.com", "Penstock <x>"])
def test_a_sender_is_checked(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^PENSTOCK_FROM_EMAIL"):
        ControlConfig.from_environment({**os.environ, "PENSTOCK_FROM_EMAIL": value})
