"""`penstock billing stripe-check`: the whole path of a payment against a Stripe test account."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.payments.checking import STEPS, check_stripe
from billing.payments.errors import NoStripe


class Command(BaseCommand):
    """Runs customer, method, top-up, webhook, refund; leaves nothing in this database."""

    help = (
        "Run a payment's whole path against the Stripe test account of STRIPE_SECRET_KEY: "
        "customer, payment method, top-up, webhook, refund. Refuses live keys. Nothing stays in "
        "this database; the test account keeps a customer, a payment of $5 and its refund."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the switch for programs."""
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Say each step as it is done."""
        done: list[str] = []

        def tell(step: str, found: str) -> None:
            done.append(found)
            if not options["json"]:
                self.stdout.write(f"[{len(done)}/{len(STEPS)}] {step}: {found}")
                self.stdout.flush()

        try:
            check_stripe(tell=tell)
        except NoStripe as error:
            raise CommandError(
                "Stripe is not set up: set STRIPE_SECRET_KEY, STRIPE_WEBHOOK_SECRET and "
                "STRIPE_PUBLISHABLE_KEY (sk_test_…, whsec_…, pk_test_…)."
            ) from error
        except Exception as error:
            step = STEPS[min(len(done), len(STEPS) - 1)]
            why = getattr(error, "why", None) or str(error)
            raise CommandError(f"{step} failed: {why}") from error
        if options["json"]:
            self.stdout.write(json.dumps({"ok": True, "steps": done}))
        else:
            self.stdout.write(self.style.SUCCESS("Stripe works with these keys."))
