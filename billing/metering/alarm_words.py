"""What each kind of alarm means and what to do about it, in an operator's words."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Behind = Literal[
    "dead letters",
    "leases",
    "events",
    "faults",
    "engines",
    "prices",
    "messages",
    "payments",
    "disputes",
    "replica failures",
    "checks",
    "days",
    "consumers",
    "resent usage",
    "counts",
]
"""Which rows stand behind an alarm; the counts by day where nothing else does."""
LATE_FOLLOWER = "late_follower_"


@dataclass(frozen=True, slots=True)
class Words:
    """A kind of alarm: its name, what happened, what to do, and where its rows are."""

    name: "StrOrPromise"
    meaning: "StrOrPromise"
    action: "StrOrPromise"
    behind: Behind


WORDS: dict[str, Words] = {
    "dead_letter": Words(
        _("Dead letter"),
        _("An event could not be recorded and was kept as it came. Nobody was charged for it."),
        _(
            "Fix the reason, then retry the event. If it can never be recorded, as when its"
            " request is over 90 days old, dismiss it with a reason."
        ),
        "dead letters",
    ),
    "archive_not_at_hand": Words(
        _("Archive unavailable"),
        _("Somebody opened a request of an archived day, and the day's file cannot be read."),
        _("Restore the file from a backup to PENSTOCK_ARCHIVE_DIR. The log names the day."),
        "days",
    ),
    "lease_overrun": Words(
        _("Lease overrun"),
        _("Events took more from a lease than it was granted, so a limit may have been exceeded."),
        _(
            "Check the gateway's version and clock, then acknowledge the overrun on the lease's"
            " page."
        ),
        "leases",
    ),
    "closed_lease": Words(
        _("Closed lease"),
        _("Usage arrived after its lease was closed or voided. It was charged all the same."),
        _(
            "This is normal after a lease was released by hand. Otherwise the gateway closed it"
            " too early."
        ),
        "leases",
    ),
    "unknown_lease": Words(
        _("Unknown lease"),
        _("Usage named a lease that this database never granted. It was charged all the same."),
        _(
            "This is normal after a restore from backup. Otherwise find out which control plane"
            " the gateway uses."
        ),
        "events",
    ),
    "foreign_lease": Words(
        _("Foreign lease"),
        _(
            "Usage named a lease of another gateway, organization or month. It was charged all"
            " the same, to its own budgets."
        ),
        _("A gateway is at fault, or two gateways share one ID. Check the gateway of the events."),
        "events",
    ),
    "missing_lease": Words(
        _("Missing lease"),
        _("Usage was charged without a lease of the balance."),
        _(
            "A gateway served a request without reserving credit. Check its version and"
            " configuration."
        ),
        "events",
    ),
    "charge_difference": Words(
        _("Charge difference"),
        _(
            "The gateway calculated another charge than the price gives. The charge by the price"
            " was recorded."
        ),
        _(
            "The gateway had another price or an older rating. Check the age of its feed and its"
            " version."
        ),
        "events",
    ),
    "foreign_caller": Words(
        _("Foreign caller"),
        _(
            "Usage named a key that does not belong to its project and organization. It was not"
            " charged."
        ),
        _(
            "This is normal for keys that were created after the time to which the database was"
            " restored. Otherwise suspect the gateway's state, or a forged batch: keys cannot move"
            " between projects."
        ),
        "faults",
    ),
    "unknown_price": Words(
        _("Unknown price"),
        _("Usage named a price that is unknown or was cancelled. It was not charged."),
        _(
            "This is normal for prices that were published after the time to which the database"
            " was restored. Otherwise compare the event's price with the price books: the gateway's"
            " feed may come from another database."
        ),
        "faults",
    ),
    "foreign_price": Words(
        _("Foreign price"),
        _("Usage named a price of another variant, tier or organization. It was not charged."),
        _("A gateway is at fault. Check the event, then the gateway's version."),
        "faults",
    ),
    "early_price": Words(
        _("Early price"),
        _("Usage named a price that was not yet in force. It was not charged."),
        _("Check the gateway's clock, and when the price book took effect."),
        "faults",
    ),
    "superseded_price": Words(
        _("Superseded price"),
        _("Usage was charged at a price that had already been replaced."),
        _("This is normal while a gateway could not reach control. Check the age of its feed."),
        "prices",
    ),
    "other_band": Words(
        _("Other band"),
        _("Usage was charged at the price of another context length than it had."),
        _("Check the bands of the price book and the gateway's version."),
        "prices",
    ),
    "other_content": Words(
        _("Other content"),
        _("An event arrived again with other content under the same ID. The first one counts."),
        _("A gateway is at fault, or two gateways share an ID or a journal. Find out which."),
        "events",
    ),
    "database_replaced": Words(
        _("Database replaced"),
        _(
            "This database was promoted or restored, and may lack usage that the one before it had"
            " recorded. Charts and the ledger wait until every gateway has sent the usage it keeps"
            " and none was missing."
        ),
        _(
            "See which gateways are not finished, or whose usage was missing. Start those that are"
            " away or ship their folders, then run “penstock billing rebuild-usage”."
        ),
        "resent usage",
    ),
    "duplicate_event": Words(
        _("Duplicate event"),
        _(
            "Events arrived more than once and were recorded once. The count is how often that"
            " happened."
        ),
        _(
            "Nothing: this is normal after lost responses, restarts and restores. Investigate"
            " only if it continues."
        ),
        "events",
    ),
    "engine_difference": Words(
        _("Engine difference"),
        _("An engine counted other tokens than were recorded, beyond everything that explains it."),
        _(
            "Check the hour: the engine produced tokens that nobody pays for, or tokens were"
            " recorded that it did not produce."
        ),
        "engines",
    ),
    "engine_unsampled": Words(
        _("Engine without samples"),
        _("A replica served requests while no fleet reported what it counted."),
        _(
            "Check that its fleet runs and reaches control. The replica's cost is missing from"
            " the margin too."
        ),
        "engines",
    ),
    "outbox_message_abandoned": Words(
        _("Message given up"),
        _("An email, webhook or other message to another system failed until its time was over."),
        _("Fix the reason, then retry the message from the outbox."),
        "messages",
    ),
    "replica_failed": Words(
        _("Replica failed"),
        _(
            "A replica of a deployment failed. The fleet starts another one, after a longer pause"
            " each time."
        ),
        _(
            "Read the reason. If replicas fail again and again, correct the deployment, or set its"
            " replicas to 0."
        ),
        "replica failures",
    ),
    "payment_gap": Words(
        _("Unmatched payment"),
        _("Stripe and our records differ on a payment, refund or dispute."),
        _("Open it under Payments. Credit it, or dismiss it with a reason."),
        "payments",
    ),
    "payment_disputed": Words(
        _("Payment disputed"),
        _("A customer's bank demands a payment back."),
        _("Respond in Stripe's dashboard in time. Without a response the dispute is lost."),
        "disputes",
    ),
    "check_failed": Words(
        _("Integrity check failed"),
        _("One of the hourly integrity checks found rows that break a rule."),
        _(
            "Run `penstock billing check-integrity`: it names the check and shows examples."
            " Change nothing by hand."
        ),
        "checks",
    ),
    "day_disagrees": Words(
        _("Day not sealed"),
        _("A day that is over was not sealed, because its rollups and its events disagree."),
        _("Run `penstock billing check-integrity`. The day stays open until both agree."),
        "days",
    ),
}


def words_of(kind: str) -> Words:
    """Return the words for a kind of alarm; one that nobody described keeps its own name."""
    if kind.startswith(LATE_FOLLOWER):
        name = kind.removeprefix(LATE_FOLLOWER)
        return Words(
            gettext("Consumer lag: %(name)s") % {"name": name},
            _(
                "A consumer of usage events is over a minute behind. Each count is one minute of"
                " delay."
            ),
            _("Check that the worker runs, and that no transaction stays open for long."),
            "consumers",
        )
    plain = kind.replace("_", " ").capitalize()
    return WORDS.get(kind) or Words(
        plain,
        _("This kind of alarm has no description."),
        _("See when it was raised, and search the log for it."),
        "counts",
    )
