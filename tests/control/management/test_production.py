"""What `penstock check --deploy` says of a configuration, and of the platform that runs on it."""

import json
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command

from control.accounts.models import User
from control.config import ControlConfig, Database
from control.mail.server_url import MailServer
from control.management.commands import check
from control.management.production import Flaw, flaws, is_local

PUBLIC = {
    "DATABASE_URL": "postgresql://app:x@db.internal.example/penstock?sslmode=verify-full",
    "REDIS_URL": "rediss://:pass@redis.internal.example/0",
    "PENSTOCK_SECRET_KEY": "kE8qLz1vWm3xRt6yUn0pBs5dHf7gJc2a",
    "PENSTOCK_INTERNAL_SECRET": "Zp4oIu8yTr2eWq6aSd0fGh5jKl1zXc9v",
    "PENSTOCK_KEY_PEPPER": "Mn3bVc7xZl1kJh5gFd9sAp2oIu6yTr0e",
    "PENSTOCK_ENCRYPTION_KEY": "Tg6hBn4mJu8kIl0pOq1wSx3eDc5rFv7t",
    "PENSTOCK_PLAYGROUND_SECRET": "Qw2eRt6yUi0oPa4sDf8gHj1kLz5xCv9b",
    "PENSTOCK_CONSOLE_URL": "https://console.penstock.example",
    "PENSTOCK_GATEWAY_PUBLIC_URL": "https://api.penstock.example/v1",
    "PENSTOCK_CONTROL_HOST": "10.0.0.5",
    "PENSTOCK_INTERNAL_API_HOST": "10.1.0.5",
    "PENSTOCK_TRUSTED_PROXIES": "10.0.0.0/24",
    "PENSTOCK_FROM_EMAIL": "Penstock <noreply@penstock.example>",
    "PENSTOCK_SUPPORT_EMAIL": "support@penstock.example",
    "PENSTOCK_LOG_FORMAT": "json",
    "PENSTOCK_STATIC_DIR": "/srv/static",
    "PENSTOCK_ARCHIVE_DIR": "/srv/archive",
    "EMAIL_URL": "smtps://user:password@mail.penstock.example:465",
}
FIT = ControlConfig.from_environment(PUBLIC)
UNFIT: list[tuple[str, dict[str, Any]]] = [
    ("PENSTOCK_DEBUG", {"debug": True}),
    ("PENSTOCK_CONSOLE_URL", {"console_url": "http://console.penstock.example"}),
    ("PENSTOCK_CONSOLE_URL", {"console_url": "https://127.0.0.1:8700"}),
    ("PENSTOCK_GATEWAY_PUBLIC_URL", {"gateway_public_url": "http://api.penstock.example/v1"}),
    ("PENSTOCK_GATEWAY_PUBLIC_URL", {"gateway_public_url": "https://localhost/v1"}),
    ("PENSTOCK_TRUSTED_PROXIES", {"trusted_proxies": ()}),
    ("PENSTOCK_TRUSTED_PROXIES", {"trusted_proxies": (ip_network("0.0.0.0/0"),)}),
    ("PENSTOCK_PROXY_PROTOCOL_FROM", {"proxy_protocol_from": (ip_network("::/0"),)}),
    ("PENSTOCK_INTERNAL_API_HOST", {"internal_api_host": "0.0.0.0"}),  # noqa: S104
    ("PENSTOCK_INTERNAL_API_HOST", {"internal_api_host": "8.8.4.4", "host": "8.8.4.4"}),
    ("PENSTOCK_INTERNAL_API_HOST", {"internal_api_host": "a.example", "host": "a.example"}),
    ("PENSTOCK_SECRET_KEY", {"secret_key": "a" * 40}),
    ("PENSTOCK_KEY_PEPPER", {"key_peppers": ("short-one-16-chr",)}),
    ("PENSTOCK_ENCRYPTION_KEY", {"encryption_keys": FIT.key_peppers}),
    ("PENSTOCK_INTERNAL_SECRET", {"internal_secret": "change-me-0123456789-abcdefghijkl"}),
    ("PENSTOCK_PLAYGROUND_SECRET", {"playground_secret": FIT.key_peppers[0]}),
    ("EMAIL_URL", {"mail_server": MailServer.from_url("database:")}),
    ("EMAIL_URL", {"mail_server": MailServer.from_url("smtp://mail:25?tls=false")}),
    ("PENSTOCK_FROM_EMAIL", {"from_email": "Penstock <noreply@127.0.0.1>"}),
    ("DATABASE_URL", {"database": Database.from_url("x", "postgresql://a:b@db.example/p")}),
    ("REDIS_URL", {"redis_url": "redis://redis.internal.example/0"}),
    ("PENSTOCK_EGRESS_ALLOW_HTTP", {"egress_allow_http": True}),
]


def names(found: list[Flaw], level: str = "must") -> set[str]:
    return {flaw.name for flaw in found if flaw.level == level}


def test_what_is_fit_has_no_flaw() -> None:
    assert flaws(FIT) == []


def test_mail_that_stays_on_this_machine_needs_no_tls() -> None:
    server = MailServer.from_url("smtp://127.0.0.1:25?tls=false")
    assert flaws(replace(FIT, mail_server=server)) == []


def test_both_listeners_may_share_a_private_address() -> None:
    assert flaws(replace(FIT, host="10.0.0.5", internal_api_host="10.0.0.5")) == []


def test_a_balancer_may_name_clients_by_the_proxy_protocol() -> None:
    proxied = (ip_network("10.0.0.0/24"),)
    assert flaws(replace(FIT, trusted_proxies=(), proxy_protocol_from=proxied)) == []


@pytest.mark.parametrize(("name", "changed"), UNFIT)
def test_each_flaw_is_named_by_its_variable(name: str, changed: dict[str, Any]) -> None:
    assert name in names(flaws(replace(FIT, **changed)))


def test_what_is_only_worse_is_told_and_fails_nothing() -> None:
    config = replace(FIT, log_format="console", static_dir=None, archive_dir=None, support_email="")
    found = flaws(config)
    assert names(found) == set()
    assert names(found, "should") == {
        "PENSTOCK_LOG_FORMAT",
        "PENSTOCK_SUPPORT_EMAIL",
        "PENSTOCK_STATIC_DIR",
        "PENSTOCK_ARCHIVE_DIR",
    }


def test_no_secret_is_repeated() -> None:
    config = replace(FIT, key_peppers=("a" * 40,), redis_url="redis://:hunter2@far.example/0")
    said = " ".join(flaw.words for flaw in flaws(config))
    assert "aaaa" not in said
    assert "hunter2" not in said


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "box", "a.local", ""])
def test_a_host_of_this_machine_is_local(host: str) -> None:
    assert is_local(host)


@pytest.mark.django_db
def test_the_tests_own_platform_is_not_fit(capsys: pytest.CaptureFixture) -> None:
    User.objects.create_superuser("root@acme.example")
    with pytest.raises(SystemExit) as ended:
        call_command("check", "--deploy", "--json")
    assert ended.value.code == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"PENSTOCK_CONSOLE_URL", "EMAIL_URL", "operators", "REDIS_URL"} <= found.keys()
    assert "DATABASE_URL" not in found  # two roles


@pytest.mark.django_db
def test_a_platform_without_an_owner_is_not_fit(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        call_command("check", "--deploy", "--json")
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert "createsuperuser" in found["operators"]["words"]


@pytest.mark.django_db
def test_fonts_that_are_not_installed_are_said(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    for name, is_said in (("json", False), ("manimgx_fonts_cjk", True)):
        monkeypatch.setattr(check, "find_spec", lambda wanted, name=name: wanted != name or None)
        with pytest.raises(SystemExit):
            call_command("check", "--deploy")
        assert ("penstock[fonts-cjk] is not installed" in capsys.readouterr().out) == is_said


@pytest.mark.django_db
def test_without_deploy_it_runs_the_system_checks(capsys: pytest.CaptureFixture) -> None:
    call_command("check")
    assert capsys.readouterr().out.startswith("System check identified no issues")


@pytest.mark.django_db
def test_people_read_what_must_be_mended_first(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        call_command("check", "--deploy")
    lines = capsys.readouterr().out.splitlines()
    levels = [line.split()[0] for line in lines[:-1]]
    assert levels == sorted(levels)
    assert lines[-1].endswith("to think about.")
    assert django_settings.CONFIG.secret_key not in "".join(lines)


@pytest.mark.django_db
def test_a_server_that_is_too_old_must_be_mended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = "names PostgreSQL 14.11; Penstock needs 15 or later"
    monkeypatch.setattr(check, "unsupported_versions", lambda: [("DATABASE_URL", words)])
    with pytest.raises(SystemExit):
        call_command("check", "--deploy")
    assert f"must    DATABASE_URL {words}." in capsys.readouterr().out.splitlines()
