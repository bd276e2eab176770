"""What can be asked of the double: each route with stripe-python's type of its parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stripe import params
from stripe.params import checkout

from tests.simulation.stripe_double.books import Thing
from tests.simulation.stripe_double.errors import ApiError
from tests.simulation.stripe_double.money import StripeMoney

Answer = Callable[[StripeMoney, dict[str, Any], str], Thing]
CURRENCIES = ("usd", "eur", "gbp", "jpy", "chf")


@dataclass(frozen=True, slots=True)
class Route:
    """One route: `params` is stripe-python's type of what may be sent."""

    params: type
    answer: Answer


def create_customer(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
    customer = money.make("customer", **asked)
    money.tell("customer.created", customer)
    return customer


def rename_customer(money: StripeMoney, asked: dict[str, Any], customer_id: str) -> Thing:
    customer = money.get("customer", customer_id)
    customer.update(asked)
    money.tell("customer.updated", customer)
    return customer


def create_setup(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
    money.get("customer", asked["customer"])
    if asked.get("confirm") and "payment_method" not in asked:
        raise ApiError(400, "You cannot confirm without a payment method.", param="payment_method")
    values: dict[str, Any] = {"last_setup_error": None, "next_action": None}
    setup = money.make("setup_intent", **values, customer=asked["customer"])
    setup["metadata"] = asked.get("metadata", {})
    if asked.get("confirm"):
        method = money.save_method(asked["payment_method"], asked["customer"])
        setup.update(status="succeeded", payment_method=method["id"])
        money.tell("setup_intent.succeeded", setup)
    return setup


def detach(money: StripeMoney, asked: dict[str, Any], method_id: str) -> Thing:
    method = money.get("payment_method", method_id)
    if method["customer"] is None:
        raise ApiError(400, "The payment method is not attached to a customer.")
    method["customer"] = None
    money.tell("payment_method.detached", method)
    return method


def create_intent(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
    _check_amount(asked["amount"], asked["currency"])
    money.get("customer", asked.get("customer"))
    method = money.get("payment_method", asked.get("payment_method"))
    if method["customer"] != asked["customer"]:
        raise ApiError(400, "The payment method does not belong to this customer.")
    allowed = asked.get("allowed_payment_method_types", ["card"])
    if method["type"] not in allowed:
        raise ApiError(400, f"The type {method['type']} is not allowed.", param="payment_method")
    if asked.get("off_session") and not asked.get("confirm"):
        raise ApiError(400, "off_session needs confirm.", param="off_session")
    if asked.get("off_session") and asked.get("return_url"):
        raise ApiError(400, "off_session allows no return_url here.", param="return_url")
    shown = {name: asked[name] for name in ("customer", "description") if name in asked}
    intent = money.make(
        "payment_intent",
        **money.fresh_intent(asked["amount"], asked["currency"]),
        **shown,
        metadata=asked.get("metadata", {}),
        payment_method=method["id"],
        payment_method_types=allowed,
    )
    money.tell("payment_intent.created", intent)
    if asked.get("confirm"):
        money.charge(intent, is_off_session=bool(asked.get("off_session")))
    return intent


def cancel_intent(money: StripeMoney, asked: dict[str, Any], intent_id: str) -> Thing:
    intent = money.get("payment_intent", intent_id)
    if intent["status"] in ("succeeded", "canceled", "processing"):
        message = f"You cannot cancel this PaymentIntent: it is {intent['status']}."
        raise ApiError(400, message, code="payment_intent_unexpected_state")
    intent["status"] = "canceled"
    money.tell("payment_intent.canceled", intent)
    return intent


def create_session(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
    money.get("customer", asked.get("customer"))
    if asked["mode"] == "setup" and not (
        asked.get("currency") or "allowed_payment_method_types" in asked
    ):
        raise ApiError(400, "currency is needed for a set-up.", param="currency")
    total = 0
    for line in asked.get("line_items", []):
        price = line["price_data"]
        total += line["quantity"] * price["unit_amount"]
        _check_amount(price["unit_amount"], price["currency"], least=0)
    if asked["mode"] == "payment":
        _check_amount(total, "usd")
        lives = asked["expires_at"] - money.clock()
        if not lives + 60 >= 30 * 60 or lives > 24 * 3600:
            raise ApiError(400, "expires_at must be 30 minutes to 24 hours away.")
    session = money.make(
        "checkout.session",
        mode=asked["mode"],
        customer=asked["customer"],
        metadata=asked.get("metadata", {}),
        client_reference_id=asked.get("client_reference_id"),
        amount_total=total or None,
        amount_subtotal=total or None,
        currency="usd",
        payment_intent=None,
        status="open",
        success_url=asked["success_url"],
    )
    session["url"] = f"https://checkout.stripe.com/c/pay/{session['id']}"
    session["_asked"] = asked
    return session


def create_refund(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
    refund = money.pay_back(asked["payment_intent"], asked.get("amount"))
    refund["metadata"] = asked.get("metadata", {})
    return refund


def _check_amount(cents: int, currency: str, least: int = 50) -> None:
    if currency not in CURRENCIES:
        message = f"Invalid currency: {currency}."
        raise ApiError(400, message, code="invalid_currency", param="currency")
    if not least <= cents <= 99_999_999:
        raise ApiError(400, "Amount out of bounds.", code="amount_too_small", param="amount")


def fetch(kind: str) -> Answer:
    """Return an answer that shows an object."""

    def answer(money: StripeMoney, asked: dict[str, Any], thing_id: str) -> Thing:
        return money.get(kind, thing_id)

    return answer


def listing(kind: str, *by: str) -> Answer:
    """Return an answer that lists objects, newest first, by these of their fields."""

    def answer(money: StripeMoney, asked: dict[str, Any], _: str) -> Thing:
        found = [each for each in money.all(kind) if _matches(each, asked, by)]
        after = asked.get("starting_after")
        if after:
            found = found[[each["id"] for each in found].index(after) + 1 :]
        page = found[: asked.get("limit", 10)]
        has_more = len(found) > len(page)
        return {"object": "list", "data": page, "has_more": has_more, "url": f"/v1/{kind}s"}

    return answer


def _matches(thing: Thing, asked: dict[str, Any], by: tuple[str, ...]) -> bool:
    created = asked.get("created", {})
    within = created.get("gte", 0) <= thing["created"] < created.get("lt", 2**40)
    return within and all(thing[name] == asked[name] for name in by if name in asked)


ROUTES = {
    ("POST", "customers"): Route(params.CustomerCreateParams, create_customer),
    ("POST", "customers/*"): Route(params.CustomerUpdateParams, rename_customer),
    ("POST", "setup_intents"): Route(params.SetupIntentCreateParams, create_setup),
    ("GET", "setup_intents/*"): Route(params.SetupIntentRetrieveParams, fetch("setup_intent")),
    ("GET", "payment_methods/*"): Route(
        params.PaymentMethodRetrieveParams, fetch("payment_method")
    ),
    ("POST", "payment_methods/*/detach"): Route(params.PaymentMethodDetachParams, detach),
    ("POST", "payment_intents"): Route(params.PaymentIntentCreateParams, create_intent),
    ("GET", "payment_intents/*"): Route(
        params.PaymentIntentRetrieveParams, fetch("payment_intent")
    ),
    ("POST", "payment_intents/*/cancel"): Route(params.PaymentIntentCancelParams, cancel_intent),
    ("GET", "payment_intents"): Route(
        params.PaymentIntentListParams, listing("payment_intent", "customer")
    ),
    ("POST", "checkout/sessions"): Route(checkout.SessionCreateParams, create_session),
    ("GET", "checkout/sessions/*"): Route(
        checkout.SessionRetrieveParams, fetch("checkout.session")
    ),
    ("GET", "charges/*"): Route(params.ChargeRetrieveParams, fetch("charge")),
    ("POST", "refunds"): Route(params.RefundCreateParams, create_refund),
    ("GET", "refunds/*"): Route(params.RefundRetrieveParams, fetch("refund")),
    ("GET", "refunds"): Route(params.RefundListParams, listing("refund", "payment_intent")),
    ("GET", "disputes"): Route(params.DisputeListParams, listing("dispute")),
    ("GET", "disputes/*"): Route(params.DisputeRetrieveParams, fetch("dispute")),
    ("GET", "balance_transactions"): Route(
        params.BalanceTransactionListParams, listing("balance_transaction", "source")
    ),
}
"""By method and path, a `*` for an id."""
