"""The whole platform with Stripe's double in Stripe's place: asked over HTTP, answering by signed
webhooks, and its pages shown in the browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import httpx
from playwright.sync_api import BrowserContext, Route

from billing.simulation.stripe_double import StripeDouble
from billing.simulation.stripe_double.webhooks import signed
from tests.support.stack import Stack, running
from tests.support.stripe_server import running_stripe

EVERY_SECONDS = 0.2
PAGES = "https://checkout.stripe.com/**"
PAGE = "<!doctype html><title>Stripe</title><h1>{title}</h1><a href='{link}'>{words}</a>"


@dataclass
class PaidStack:
    """A running platform, and who plays Stripe for it. `card` is what the customer types there."""

    stack: Stack
    stripe: StripeDouble
    card: str = "pm_card_visa"
    refusals: list[int] = field(default_factory=list)
    """What the platform answered to webhooks, where that was not 200."""

    def show_pages(self, context: BrowserContext) -> None:
        """Show Stripe's pages to a browser."""
        context.route(PAGES, self._show)

    def _show(self, route: Route) -> None:
        session_id = route.request.url.rpartition("/")[2]
        session = self.stripe.get("checkout.session", session_id)
        back = session["success_url"].replace("{CHECKOUT_SESSION_ID}", session_id)
        if "/c/pay/" in route.request.url:
            link, words = f"https://checkout.stripe.com/done/{session_id}", "Pay or save"
            body = PAGE.format(title="Stripe's page", link=link, words=words)
        else:
            self._do(session_id, session["mode"])
            body = PAGE.format(title="Done", link=back, words="Back to the shop")
        route.fulfill(content_type="text/html", body=body)

    def _do(self, session_id: str, mode: str) -> None:
        if mode == "setup":
            self.stripe.save(session_id, self.card)
        else:
            self.stripe.pay(session_id, self.card)

    def post_webhooks(self, ended: Event) -> None:
        """Deliver every event as it comes, as Stripe does; what is refused comes again."""
        address = f"{self.stack.credentials['console_url']}/stripe/webhook"
        done = 0
        with httpx.Client(timeout=10) as client:
            while not ended.wait(EVERY_SECONDS):
                for event in self.stripe.events[done:]:
                    body, signature = signed(event, self.stripe.keys.webhook_secrets[0])
                    headers = {"stripe-signature": signature, "content-type": "application/json"}
                    try:
                        status = client.post(address, content=body, headers=headers).status_code
                    except httpx.TransportError:
                        break
                    if status != 200:
                        self.refusals.append(status)
                        break
                    done += 1


@contextmanager
def running_with_stripe(**variables: str) -> Iterator[PaidStack]:
    """Start a platform with a simulated engine and the double's keys."""
    with running_stripe() as double:
        keys = double.keys
        stripe = {
            "STRIPE_SECRET_KEY": keys.secret,
            "STRIPE_PUBLISHABLE_KEY": keys.publishable,
            "STRIPE_WEBHOOK_SECRET": ",".join(keys.webhook_secrets),
            "STRIPE_API_BASE": keys.api_base,
        }
        with running(engine="simulated", **stripe, **variables) as stack:
            paid, ended = PaidStack(stack, double), Event()
            postman = Thread(target=paid.post_webhooks, args=[ended], daemon=True)
            postman.start()
            try:
                yield paid
            finally:
                ended.set()
                postman.join(15)
