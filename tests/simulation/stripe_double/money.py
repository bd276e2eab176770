"""What happens to money at Stripe: charges, declines, bank debits, refunds, disputes."""

from typing import Any

from tests.simulation.stripe_double.books import StripeBooks, Thing
from tests.simulation.stripe_double.cards import CARDS, Card
from tests.simulation.stripe_double.errors import ApiError, declined

RECEIPT = "https://pay.stripe.com/receipts/"


class StripeMoney(StripeBooks):
    """Charges and what comes after, each change with its events."""

    def card_of(self, method_id: str) -> Card:
        """Return how a method behaves; a token of a test card as itself."""
        return self.cards.get(method_id) or CARDS[method_id]

    def save_method(self, token: str, customer: str) -> Thing:
        """Make a method of a test card's token, for a customer. Raises ApiError."""
        card = CARDS.get(token)
        if card is None:
            raise ApiError(404, f"No such PaymentMethod: '{token}'", code="resource_missing")
        if not card.may_save:
            raise declined(card.code, card.decline_code, "Your card was declined.")
        shown: dict[str, Any] = {"brand": card.brand, "last4": card.last4}
        if card.kind == "card":
            shown |= {"exp_month": 8, "exp_year": 2035, "country": "US", "funding": "credit"}
            method = self.make("payment_method", type="card", customer=customer, card=shown)
        else:
            account = {"bank_name": card.brand, "last4": card.last4, "account_type": "checking"}
            method = self.make("payment_method", type=card.kind, customer=customer)
            method.pop("card")
            method["us_bank_account"] = account
        self.cards[method["id"]] = card
        self.tell("payment_method.attached", method)
        return method

    def charge(self, intent: Thing, *, is_off_session: bool) -> None:
        """Charge an intent's method. Raises ApiError for a decline, which the intent remembers."""
        card = self.card_of(intent["payment_method"])
        if card.act == "declines" or (card.act == "asks" and is_off_session):
            self._decline(intent, card)
        elif card.act == "asks":
            url = f"https://hooks.stripe.com/3d_secure/{intent['id']}"
            intent["status"] = "requires_action"
            intent["next_action"] = {
                "type": "redirect_to_url",
                "redirect_to_url": {"url": url, "return_url": None},
            }
            self.tell("payment_intent.requires_action", intent)
        elif card.kind == "us_bank_account":
            intent["status"] = "processing"
            self.tell("payment_intent.processing", intent)
        else:
            self.succeed(intent)
            if card.act == "disputes":
                self.open_dispute(intent["id"])

    def succeed(self, intent: Thing) -> None:
        """The money is there."""
        charge = self.make(
            "charge",
            amount=intent["amount"],
            amount_captured=intent["amount"],
            captured=True,
            paid=True,
            currency=intent["currency"],
            customer=intent["customer"],
            payment_intent=intent["id"],
            payment_method=intent["payment_method"],
            status="succeeded",
        )
        charge["receipt_url"] = f"{RECEIPT}{charge['id']}"
        moved = self.move("charge", intent["amount"], charge)
        charge["balance_transaction"] = moved["id"]
        intent.update(
            status="succeeded",
            amount_received=intent["amount"],
            latest_charge=charge["id"],
            last_payment_error=None,
            next_action=None,
        )
        self.tell("charge.succeeded", charge)
        self.tell("payment_intent.succeeded", intent)

    def _decline(self, intent: Thing, card: Card) -> None:
        error = {
            "type": "card_error",
            "code": card.code,
            "decline_code": card.decline_code,
            "message": f"Your card was declined ({card.decline_code}).",
        }
        intent.update(status="requires_payment_method", last_payment_error=error)
        self.tell("payment_intent.payment_failed", intent)
        raise declined(
            card.code, card.decline_code, str(error["message"]), payment_intent=dict(intent)
        )

    # What a customer does on Stripe's page or at their bank.

    def pay(self, session_id: str, card: str = "pm_card_visa") -> Thing:
        """Pay a checkout's page with a test card; a declined one leaves the page open."""
        session = self.get("checkout.session", session_id)
        _require_status(session, "open")
        asked = session["_asked"].get("payment_intent_data", {})
        intent = self.things.get(session["payment_intent"] or "") or self.make(
            "payment_intent",
            **self.fresh_intent(session["amount_total"], session["currency"]),
            customer=session["customer"],
            metadata=asked.get("metadata", {}),
            setup_future_usage=asked.get("setup_future_usage"),
        )
        session["payment_intent"] = intent["id"]
        kind = CARDS[card]
        if kind.act == "declines":
            intent["payment_method"] = card
            try:
                self._decline(intent, kind)
            except ApiError:
                return session
        method = self.save_method(card, session["customer"])
        intent["payment_method"] = method["id"]
        self.charge(intent, is_off_session=False)
        is_paid = intent["status"] == "succeeded"
        session.update(status="complete", payment_status="paid" if is_paid else "unpaid", url=None)
        self.tell("checkout.session.completed", session)
        return session

    def save(self, session_id: str, card: str = "pm_card_visa") -> Thing:
        """Save a test card on a set-up's page."""
        session = self.get("checkout.session", session_id)
        method = self.save_method(card, session["customer"])
        setup = self.make(
            "setup_intent",
            customer=session["customer"],
            payment_method=method["id"],
            status="succeeded",
            last_setup_error=None,
            next_action=None,
        )
        session.update(status="complete", setup_intent=setup["id"], url=None)
        self.tell("setup_intent.succeeded", setup)
        self.tell("checkout.session.completed", session)
        return method

    def expire(self, session_id: str) -> Thing:
        """Let a page's time be over."""
        session = self.get("checkout.session", session_id)
        if session["status"] != "open":
            raise ApiError(400, "Only Checkout Sessions with a status of open can be expired.")
        session.update(status="expired", url=None)
        self.tell("checkout.session.expired", session)
        return session

    def confirm(self, intent_id: str) -> None:
        """Confirm a payment to the customer's bank."""
        intent = self.get("payment_intent", intent_id)
        _require_status(intent, "requires_action")
        self.succeed(intent)

    def settle_debit(self, intent_id: str, *, is_paid: bool = True) -> None:
        """Let a bank debit come through, or come back."""
        intent = self.get("payment_intent", intent_id)
        _require_status(intent, "processing")
        if is_paid:
            self.succeed(intent)
            return
        error = {"type": "invalid_request_error", "code": "insufficient_funds", "message": "No."}
        intent.update(status="requires_payment_method", last_payment_error=error)
        self.tell("payment_intent.payment_failed", intent)
        for session in self.all("checkout.session"):
            if session["payment_intent"] == intent_id:
                self.tell("checkout.session.async_payment_failed", session)

    def pay_unasked(self, customer: str, cents: int, **values: Any) -> Thing:
        """Take a payment that nobody of ours asked for, at Stripe's dashboard say."""
        method = self.save_method("pm_card_visa", customer)
        intent = self.make(
            "payment_intent",
            **self.fresh_intent(cents, "usd") | values,
            customer=customer,
            payment_method=method["id"],
        )
        self.succeed(intent)
        return intent

    def fresh_intent(self, cents: int, currency: str) -> dict[str, Any]:
        """Return what an intent that nobody has paid says."""
        return {
            "amount": cents,
            "amount_received": 0,
            "currency": currency,
            "status": "requires_payment_method",
            "canceled_at": None,
            "last_payment_error": None,
            "next_action": None,
            "processing": None,
            "latest_charge": None,
            "transfer_data": None,
            "shipping": None,
        }

    # What goes back.

    def pay_back(self, intent_id: str, cents: int | None = None, **values: Any) -> Thing:
        """Refund a payment. Raises ApiError as Stripe would."""
        intent = self.get("payment_intent", intent_id)
        if intent["status"] != "succeeded":
            raise ApiError(400, "This PaymentIntent does not have a successful charge to refund.")
        charge = self.things[intent["latest_charge"]]
        if charge["disputed"]:
            raise ApiError(400, "Charge has been charged back.", code="charge_disputed")
        left = charge["amount"] - charge["amount_refunded"]
        cents = left if cents is None else cents
        if cents == 0 or left == 0:
            message = f"Charge {charge['id']} has already been refunded."
            raise ApiError(400, message, code="charge_already_refunded")
        if not 0 < cents <= left:
            message = f"Refund amount ({cents}) is greater than unrefunded amount ({left})"
            raise ApiError(400, message, param="amount")
        refund = self.make(
            "refund",
            amount=cents,
            charge=charge["id"],
            currency=intent["currency"],
            payment_intent=intent_id,
            status="succeeded",
            **values,
        )
        refund["balance_transaction"] = self.move("refund", -cents, refund)["id"]
        charge["amount_refunded"] += cents
        charge["refunded"] = charge["amount_refunded"] == charge["amount"]
        self.tell("refund.created", refund)
        self.tell("charge.refunded", charge)
        return refund

    def bounce_refund(self, refund_id: str) -> None:
        """Let the customer's bank send a refund back."""
        refund = self.get("refund", refund_id)
        refund.update(status="failed", failure_reason="expired_or_canceled_card")
        self.move("refund_failure", refund["amount"], refund)
        self.things[refund["charge"]]["amount_refunded"] -= refund["amount"]
        self.tell("refund.failed", refund)

    def open_dispute(
        self, intent_id: str, cents: int | None = None, *, asks: bool = False
    ) -> Thing:
        """Let the customer's bank ask a payment back; where it only `asks`, no money moves yet."""
        intent = self.get("payment_intent", intent_id)
        charge = self.things[intent["latest_charge"]]
        dispute = self.make(
            "dispute",
            amount=cents or charge["amount"],
            charge=charge["id"],
            currency=intent["currency"],
            payment_intent=intent_id,
            reason="fraudulent",
            status="warning_needs_response" if asks else "needs_response",
            balance_transactions=[],
        )
        self.tell("charge.dispute.created", dispute)
        if not asks:
            self._move_dispute(dispute, -dispute["amount"], "charge.dispute.funds_withdrawn")
        charge["disputed"] = True
        return dispute

    def close_dispute(self, dispute_id: str, *, is_won: bool) -> None:
        """Decide a dispute; a bank that only asked moves nothing."""
        dispute = self.get("dispute", dispute_id)
        if dispute["status"] == "warning_needs_response":
            dispute["status"] = "warning_closed"
            self.tell("charge.dispute.closed", dispute)
            return
        dispute["status"] = "won" if is_won else "lost"
        if is_won:
            self._move_dispute(dispute, dispute["amount"], "charge.dispute.funds_reinstated")
        self.tell("charge.dispute.closed", dispute)

    def _move_dispute(self, dispute: Thing, cents: int, event: str) -> None:
        moved = self.move("adjustment", cents, dispute)
        dispute["balance_transactions"].append(moved)
        self.tell(event, dispute)


def _require_status(thing: Thing, wanted: str) -> None:
    if thing["status"] != wanted:
        raise ApiError(400, f"{thing['id']} is {thing['status']}, not {wanted}.")
