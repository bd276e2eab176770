"""What each kind of alarm means and what to do about it, in an operator's words."""

from dataclasses import dataclass
from typing import Literal

Behind = Literal[
    "", "dead letters", "leases", "events", "faults", "engines", "prices", "messages", "payments"
]
"""Which rows stand behind an alarm; none where a command tells more."""
LATE_FOLLOWER = "late_follower_"


@dataclass(frozen=True, slots=True)
class Words:
    """A kind of alarm: its name, what happened, what to do, and where its rows are."""

    name: str
    meaning: str
    action: str
    behind: Behind = ""


WORDS: dict[str, Words] = {
    "dead_letter": Words(
        "Dead letter",
        "An event could not be booked and was kept as it came: nobody was charged for it.",
        "Put the reason right, then book it again; dismiss it with a reason if it never can be, as"
        " when its request is over 90 days old.",
        "dead letters",
    ),
    "archive_not_at_hand": Words(
        "Archive not at hand",
        "Somebody asked for a request of an archived day, and its file cannot be read.",
        "Bring the file back from a backup to PENSTOCK_ARCHIVE_DIR; the log names the day.",
    ),
    "lease_overrun": Words(
        "Lease overrun",
        "Events took more from a lease than it was granted: a limit may have been passed.",
        "Look into the gateway's version and clock, then acknowledge the overrun at the lease.",
        "leases",
    ),
    "closed_lease": Words(
        "Closed lease",
        "Usage came after its lease was closed or voided; it was charged all the same.",
        "Usual after a lease was released by hand. Otherwise the gateway closed it too early.",
        "leases",
    ),
    "unknown_lease": Words(
        "Unknown lease",
        "Usage named a lease that this database never granted; it was charged all the same.",
        "Usual after a restore from backup. Otherwise find out what the gateway is talking to.",
        "events",
    ),
    "foreign_lease": Words(
        "Foreign lease",
        "Usage named a lease of another gateway, organization or month; it was charged all the"
        " same, to its own budgets.",
        "A gateway is at fault, or two share one id: look at the events' gateway.",
        "events",
    ),
    "missing_lease": Words(
        "Missing lease",
        "Usage was charged for which no lease of the balance was held.",
        "A gateway served without asking for money: check its version and configuration.",
        "events",
    ),
    "charge_difference": Words(
        "Charge difference",
        "The gateway's charge is not the one that the price gives; the price's was booked.",
        "The gateway had another price or an older rating: check its feed's age and its version.",
        "events",
    ),
    "foreign_caller": Words(
        "Foreign caller",
        "Usage named a key that is not of its project and organization; it was not charged.",
        "Keys do not move: suspect the gateway's state, or a forged batch.",
        "faults",
    ),
    "unknown_price": Words(
        "Unknown price",
        "Usage named a price that control does not know or that was cancelled; it was not charged.",
        "Compare the event's price with the price books; the gateway's feed may be of another"
        " database.",
        "faults",
    ),
    "foreign_price": Words(
        "Foreign price",
        "Usage named a price of another variant, tier or organization; it was not charged.",
        "A gateway is at fault: look at the event, then at the gateway's version.",
        "faults",
    ),
    "early_price": Words(
        "Early price",
        "Usage named a price before it was in force; it was not charged.",
        "Check the gateway's clock and when the price book took effect.",
        "faults",
    ),
    "superseded_price": Words(
        "Superseded price",
        "Usage was charged by a price that another one had followed already.",
        "Usual where control was away from a gateway. Look at the age of its feed.",
        "prices",
    ),
    "other_band": Words(
        "Other band",
        "Usage was charged by the price of another context length than it had.",
        "Check the bands of the price book and the gateway's version.",
        "prices",
    ),
    "other_content": Words(
        "Other content",
        "An event came again with other bytes under the same id; the first one counts.",
        "A gateway is at fault, or two share one id or one journal: find out which.",
        "events",
    ),
    "duplicate_event": Words(
        "Duplicate event",
        "Events came more than once and were booked once: how often that happened.",
        "Nothing: usual after lost answers, restarts and restores. Look only if it goes on.",
    ),
    "engine_difference": Words(
        "Engine difference",
        "An engine counted other tokens than were booked, beyond all that explains it.",
        "Look at the hour: tokens that nobody pays for, or that nobody made.",
        "engines",
    ),
    "engine_unsampled": Words(
        "Engine without samples",
        "A replica served requests while no fleet reported what it counted.",
        "See that its fleet runs and reaches control; its cost is missing from the margin too.",
        "engines",
    ),
    "outbox_message_abandoned": Words(
        "Message given up",
        "A mail, webhook or call to the outside failed until its time was over.",
        "Put the reason right, then try it again from the outbox.",
        "messages",
    ),
    "payment_gap": Words(
        "Unmatched payment",
        "Stripe and our books say something different about a payment, refund or dispute.",
        "Look at it under Payments: credit it, or dismiss it with a reason.",
        "payments",
    ),
    "payment_disputed": Words(
        "Payment disputed",
        "A customer's bank asks a payment back.",
        "Answer it in Stripe's dashboard in time; without an answer it is lost.",
        "payments",
    ),
    "check_failed": Words(
        "Integrity check failed",
        "One of the hourly checks of the books found rows that break a promise.",
        "Run `penstock billing check-integrity`: it names the check and shows examples. Change"
        " nothing by hand.",
    ),
    "day_disagrees": Words(
        "Day not sealed",
        "A day that is over was not sealed, since its rollups and its events disagree.",
        "Run `penstock billing check-integrity`; the day stays open until both agree.",
    ),
}


def words_of(kind: str) -> Words:
    """Return the words for a kind of alarm; one that nobody described keeps its own name."""
    if kind.startswith(LATE_FOLLOWER):
        name = kind.removeprefix(LATE_FOLLOWER)
        return Words(
            f"Late follower: {name}",
            "A follower is over a minute behind the events; one count for each minute of it.",
            "See that the worker runs, and that no transaction stays open for long.",
        )
    plain = kind.replace("_", " ").capitalize()
    return WORDS.get(kind) or Words(plain, "Nobody described this kind of alarm.", "")
