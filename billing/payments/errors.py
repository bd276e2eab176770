"""What can go wrong with Stripe, split by what the caller can do about it.

NoStripe     409  no keys are set: pay by another way
StripeAway   503  no answer, or none that says anything: the same question again later, same key
Declined          the customer's bank says no; the payment carries why
NotThere          Stripe has no such object for this key
StripeRefused     Stripe finds the question wrong: a mistake of ours or of the set-up
"""

from control.errors import Conflict, ServiceError


class NoStripe(Conflict):
    """Payments through Stripe are not set up here."""

    code = "stripe_not_configured"

    def __init__(self) -> None:
        super().__init__("Card payments are not set up here; pay by bank transfer.")


class StripeAway(ServiceError):
    """Stripe did not answer, or nothing that could be relied on."""

    status = 503
    code = "payments_unavailable"
    retry_after_seconds = 5

    def __init__(self, why: str) -> None:
        super().__init__("The payment service does not answer; nothing is lost, try again.")
        self.why = why


class Declined(Exception):
    """A payment was declined: `code` is Stripe's word, `words` may be shown to the customer,
    `stripe_words` are for operators."""

    def __init__(
        self, code: str, words: str, intent_id: str | None, *, stripe_words: str = ""
    ) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words
        self.intent_id = intent_id
        self.stripe_words = stripe_words


class NotThere(Exception):
    """Stripe has no such object for this key and mode."""


REFUSED = "The payment service refused this payment; nothing was charged. We are looking into it."
"""What a customer is told where Stripe refused the question: its words are for operators."""


class StripeRefused(Exception):
    """Stripe refused the question itself."""

    def __init__(self, words: str, param: str | None = None) -> None:
        super().__init__(words if param is None else f"{words} ({param})")
        self.param = param
