"""`penstock check`: Django's system checks; with `--deploy`, what is not fit for production."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import redis
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.core.management import CommandParser
from django.core.management.commands.check import Command as CheckCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from control.management.production import Flaw, flaws
from control.operators.selectors import operators
from control.permissions import OperatorRole
from control.required_versions import unsupported_versions

ROLE = """
/* Whether this session's role is a superuser, and how many of the platform's tables it owns. */
SELECT rolsuper OR rolbypassrls, (
    SELECT count(*) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
      AND relowner = pg_roles.oid
) FROM pg_roles WHERE rolname = current_user
"""


class Command(CheckCommand):
    """Checks the configuration; run it in a service's environment. `--deploy` also asks the
    database and Redis."""

    help = "Run the system checks; with --deploy, say what is unfit for production (exit status 1)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the JSON switch."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print --deploy's flaws as JSON.")

    def handle(self, *app_labels: Any, **options: Any) -> None:
        """Run the system checks, or print the flaws, *must* before *should*."""
        if not options["deploy"]:
            super().handle(*app_labels, **options)
            return
        found = [
            *flaws(settings.CONFIG),
            *(Flaw("must", name, words) for name, words in unsupported_versions()),
            *_database_flaws(),
            *_redis_flaws(),
            *_font_flaws(),
        ]
        found.sort(key=lambda flaw: flaw.level)
        if options["json"]:
            self.stdout.write(json.dumps([asdict(flaw) for flaw in found], indent=2))
        else:
            for flaw in found:
                self.stdout.write(f"{flaw.level:<7} {flaw.name} {flaw.words}.")
            must = sum(flaw.level == "must" for flaw in found)
            self.stdout.write(f"{must} to mend, {len(found) - must} to think about.")
        if any(flaw.level == "must" for flaw in found):
            sys.exit(1)


def _database_flaws() -> Iterator[Flaw]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(ROLE)
            is_superuser, owned = cursor.fetchone()
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            yield Flaw("must", "database", "is older than the code: run `penstock upgrade`")
            return
        if is_superuser or owned:
            words = "is one role for everything: give services a role that owns no tables"
            yield Flaw("must", "DATABASE_URL", words)
        yield from _operator_flaws()
    except DatabaseError as error:
        yield Flaw("must", "DATABASE_URL", f"does not answer ({type(error).__name__})")


def _operator_flaws() -> Iterator[Flaw]:
    owners = [
        each for each in operators() if each.is_active and each.operator_role == OperatorRole.OWNER
    ]
    if not owners:
        words = "have no owner: run `penstock django createsuperuser`"
        yield Flaw("must", "operators", words)
        return
    without = sum(not is_mfa_enabled(each) for each in owners)
    if without:
        words = f"{without} of {len(owners)} owners have no second factor: anyone with their"
        yield Flaw("must", "operators", f"{words} password can set one up first")
    if len(owners) < 2:
        words = f"have {len(owners)} owner: if the second factor is lost, so is the platform"
        yield Flaw("should", "operators", words)


def _font_flaws() -> Iterator[Flaw]:
    """Billing refuses names that no font of its documents has; these fonts are an extra."""
    if find_spec("manimgx_fonts_cjk") is None:
        words = "is not installed: no invoice can be made for Chinese, Japanese and Korean names"
        yield Flaw("should", "penstock[fonts-cjk]", words)


def _redis_flaws() -> Iterator[Flaw]:
    client = redis.Redis.from_url(
        settings.CONFIG.redis_url, socket_timeout=1.0, socket_connect_timeout=1.0
    )
    try:
        client.ping()
    except (redis.RedisError, OSError) as error:
        words = (
            f"does not answer ({type(error).__name__}): sign-in attempts are counted per process"
        )
        yield Flaw("must", "REDIS_URL", words)
    finally:
        client.close()
