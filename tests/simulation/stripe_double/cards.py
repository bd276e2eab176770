"""Stripe's test cards, by their tokens, and what they do."""

from dataclasses import dataclass
from typing import Literal

Act = Literal["pays", "declines", "asks", "disputes"]


@dataclass(frozen=True, slots=True)
class Card:
    """What a method is and does when it is charged; `may_save` is false for who refuses that."""

    brand: str
    last4: str
    act: Act = "pays"
    code: str = ""
    decline_code: str = ""
    may_save: bool = True
    kind: Literal["card", "us_bank_account"] = "card"


CARDS = {
    "pm_card_visa": Card("visa", "4242"),
    "pm_card_mastercard": Card("mastercard", "4444"),
    "pm_card_chargeDeclined": Card(
        "visa", "0002", "declines", "card_declined", "generic_decline", may_save=False
    ),
    "pm_card_chargeCustomerFail": Card(
        "visa", "0341", "declines", "card_declined", "generic_decline"
    ),
    "pm_card_chargeDeclinedInsufficientFunds": Card(
        "visa", "9995", "declines", "card_declined", "insufficient_funds", may_save=False
    ),
    "pm_card_chargeDeclinedExpiredCard": Card(
        "visa", "0069", "declines", "expired_card", "expired_card", may_save=False
    ),
    "pm_card_authenticationRequired": Card(
        "visa", "3184", "asks", "authentication_required", "authentication_required"
    ),
    "pm_card_createDispute": Card("visa", "0259", "disputes"),
    "pm_usBankAccount_success": Card("STRIPE TEST BANK", "6789", kind="us_bank_account"),
}
