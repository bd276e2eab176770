"""The meaning of each kind of alarm, the action to take, and the rows that show what happened."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Evidence = Literal[
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
"""The rows that show what happened; the counts by day where nothing else does."""
CONSUMER_LAG = "late_follower_"
"""The prefix of a kind that ends with the name of a consumer."""


@dataclass(frozen=True, slots=True)
class AlarmDescription:
    """A kind of alarm in an operator's words."""

    name: "StrOrPromise"
    meaning: "StrOrPromise"
    """The event that raised it, and its effect."""
    action: "StrOrPromise"
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class EvidenceLink:
    """A link to a list of rows: its text, the name of a page of the admin, and its filters."""

    text: "StrOrPromise"
    page: str
    filters: dict[str, str] = field(default_factory=dict)


EVIDENCE_LINKS: dict[Evidence, EvidenceLink] = {
    "dead letters": EvidenceLink(
        _("See the dead letters"), "metering_deadletter_changelist", {"state": "open"}
    ),
    "leases": EvidenceLink(_("See the leases"), "credit_lease_changelist"),
    "events": EvidenceLink(_("See the events"), "metering_usageevent_changelist", {"within": "7"}),
    "faults": EvidenceLink(_("See the events"), "metering_usageevent_changelist", {"within": "7"}),
    "prices": EvidenceLink(_("See the prices"), "pricing_pricebook_changelist"),
    "engines": EvidenceLink(_("See the engines"), "economics_reconciliation", {"alarms": "1"}),
    "payments": EvidenceLink(_("See the payments"), "payments_standing"),
    "messages": EvidenceLink(
        _("See the messages"), "outbox_outboxmessage_changelist", {"state": "given_up"}
    ),
    "disputes": EvidenceLink(_("See the disputes"), "payments_dispute_changelist"),
    "replica failures": EvidenceLink(_("See the failures"), "catalog_replicafailure_changelist"),
    "checks": EvidenceLink(_("See the checks"), "following_proof_changelist"),
    "days": EvidenceLink(_("See the days"), "metering_day_changelist"),
    "consumers": EvidenceLink(_("See the consumers"), "following_cursor_changelist"),
    "resent usage": EvidenceLink(_("See the gateways"), "metering_resentusage_changelist"),
    "counts": EvidenceLink(_("See the days"), "alarms_alarmcount_changelist"),
}
"""Pages by name, since control imports no layer above it."""

DESCRIPTIONS: dict[str, AlarmDescription] = {
    "dead_letter": AlarmDescription(
        _("Dead letter"),
        _("An event could not be recorded and was kept as it came. Nobody was charged for it."),
        _(
            "Fix the reason, then retry the event. If it can never be recorded, as when its"
            " request is over 90 days old, dismiss it with a reason."
        ),
        "dead letters",
    ),
    "archive_not_at_hand": AlarmDescription(
        _("Archive unavailable"),
        _("Somebody opened a request of an archived day, and the day's file cannot be read."),
        _("Restore the file from a backup to PENSTOCK_ARCHIVE_DIR. The log names the day."),
        "days",
    ),
    "lease_overrun": AlarmDescription(
        _("Lease overrun"),
        _("Events took more from a lease than it was granted, so a limit may have been exceeded."),
        _(
            "Check the gateway's version and clock, then acknowledge the overrun on the lease's"
            " page."
        ),
        "leases",
    ),
    "closed_lease": AlarmDescription(
        _("Closed lease"),
        _("Usage arrived after its lease was closed or voided. It was charged all the same."),
        _(
            "This is normal after a lease was released by hand. Otherwise the gateway closed it"
            " too early."
        ),
        "leases",
    ),
    "unknown_lease": AlarmDescription(
        _("Unknown lease"),
        _("Usage named a lease that this database never granted. It was charged all the same."),
        _(
            "This is normal after a restore from backup. Otherwise find out which control plane"
            " the gateway uses."
        ),
        "events",
    ),
    "foreign_lease": AlarmDescription(
        _("Foreign lease"),
        _(
            "Usage named a lease of another gateway, organization or month. It was charged all"
            " the same, to its own budgets."
        ),
        _("A gateway is at fault, or two gateways share one ID. Check the gateway of the events."),
        "events",
    ),
    "missing_lease": AlarmDescription(
        _("Missing lease"),
        _("Usage was charged without a lease of the balance."),
        _(
            "A gateway served a request without reserving credit. Check its version and"
            " configuration."
        ),
        "events",
    ),
    "charge_difference": AlarmDescription(
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
    "foreign_caller": AlarmDescription(
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
    "unknown_price": AlarmDescription(
        _("Unknown price"),
        _("Usage named a price that is unknown or was cancelled. It was not charged."),
        _(
            "This is normal for prices that were published after the time to which the database"
            " was restored. Otherwise compare the event's price with the price books: the gateway's"
            " feed may come from another database."
        ),
        "faults",
    ),
    "foreign_price": AlarmDescription(
        _("Foreign price"),
        _("Usage named a price of another variant, tier or organization. It was not charged."),
        _("A gateway is at fault. Check the event, then the gateway's version."),
        "faults",
    ),
    "early_price": AlarmDescription(
        _("Early price"),
        _("Usage named a price that was not yet in force. It was not charged."),
        _("Check the gateway's clock, and when the price book took effect."),
        "faults",
    ),
    "superseded_price": AlarmDescription(
        _("Superseded price"),
        _("Usage was charged at a price that had already been replaced."),
        _("This is normal while a gateway could not reach control. Check the age of its feed."),
        "prices",
    ),
    "other_band": AlarmDescription(
        _("Other band"),
        _("Usage was charged at the price of another context length than it had."),
        _("Check the bands of the price book and the gateway's version."),
        "prices",
    ),
    "other_content": AlarmDescription(
        _("Other content"),
        _("An event arrived again with other content under the same ID. The first one counts."),
        _("A gateway is at fault, or two gateways share an ID or a journal. Find out which."),
        "events",
    ),
    "database_replaced": AlarmDescription(
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
    "duplicate_event": AlarmDescription(
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
    "engine_difference": AlarmDescription(
        _("Engine difference"),
        _("An engine counted other tokens than were recorded, beyond everything that explains it."),
        _(
            "Check the hour: the engine produced tokens that nobody pays for, or tokens were"
            " recorded that it did not produce."
        ),
        "engines",
    ),
    "engine_unsampled": AlarmDescription(
        _("Engine without samples"),
        _("A replica served requests while no fleet reported what it counted."),
        _(
            "Check that its fleet runs and reaches control. The replica's cost is missing from"
            " the margin too."
        ),
        "engines",
    ),
    "outbox_message_abandoned": AlarmDescription(
        _("Message given up"),
        _("An email, webhook or other message to another system failed until its time was over."),
        _("Fix the reason, then retry the message from the outbox."),
        "messages",
    ),
    "replica_failed": AlarmDescription(
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
    "payment_gap": AlarmDescription(
        _("Unmatched payment"),
        _("Stripe and our records differ on a payment, refund or dispute."),
        _("Open it under Payments. Credit it, or dismiss it with a reason."),
        "payments",
    ),
    "payment_disputed": AlarmDescription(
        _("Payment disputed"),
        _("A customer's bank demands a payment back."),
        _("Respond in Stripe's dashboard in time. Without a response the dispute is lost."),
        "disputes",
    ),
    "check_failed": AlarmDescription(
        _("Integrity check failed"),
        _("One of the hourly integrity checks found rows that break a rule."),
        _(
            "Run `penstock billing check-integrity`: it names the check and shows examples."
            " Change nothing by hand."
        ),
        "checks",
    ),
    "day_disagrees": AlarmDescription(
        _("Day not sealed"),
        _("A day that is over was not sealed, because its rollups and its events disagree."),
        _("Run `penstock billing check-integrity`. The day stays open until both agree."),
        "days",
    ),
}


def describe(kind: str) -> AlarmDescription:
    """Return the description of a kind of alarm; one that nobody described keeps its own name."""
    if kind.startswith(CONSUMER_LAG):
        name = kind.removeprefix(CONSUMER_LAG)
        return AlarmDescription(
            gettext("Consumer lag: %(name)s") % {"name": name},
            _(
                "A consumer of usage events is over a minute behind. Each count is one minute of"
                " delay."
            ),
            _("Check that the worker runs, and that no transaction stays open for long."),
            "consumers",
        )
    plain = kind.replace("_", " ").capitalize()
    return DESCRIPTIONS.get(kind) or AlarmDescription(
        plain,
        _("This kind of alarm has no description."),
        _("See when it was raised, and search the log for it."),
        "counts",
    )


def evidence_url(evidence: Evidence, kind: str = "") -> str:
    """Return the URL of the rows that show a kind of alarm; empty without the page's app."""
    link = EVIDENCE_LINKS[evidence]
    own = {"faults": {"fault": kind}, "counts": {"kind__exact": kind}}.get(evidence, {})
    return admin_url(link.page, **link.filters, **own)


def admin_url(page: str, **filters: str) -> str:
    """Return the URL of a page of the admin; empty where the page's app is not installed."""
    try:
        url = reverse(f"admin:{page}")
    except NoReverseMatch:
        return ""
    return f"{url}?{urlencode(filters)}" if filters else url
