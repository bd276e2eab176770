"""Figures of a gateway that are looked up when somebody asks for metrics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.gateway.gateway import Gateway


def add_gauges(gateway: "Gateway") -> None:
    """Have metrics show how a gateway stands."""
    gauge = gateway.metrics.gauge
    gauge("in_flight", "Requests under way.", lambda: gateway.app.in_flight)
    lines = gateway.connections
    gauge("connections", "Of clients.", lambda: len(lines))
    gauge("connections_refused", "There was no room.", lambda: lines.refused)
    gauge("connections_closed_idle", "To make room.", lambda: lines.closed_idle)
    gauge("requests_unreadable", "No HTTP, or too much of it.", lambda: lines.unreadable)
    gauge("tokens_under_way", "That wait or run, input.", lambda: gateway.pressure.tokens)
    gauge("body_bytes", "Of requests under way.", lambda: gateway.app.bodies.room.held)
    gauge("unread_bytes", "Kept for slow clients.", lambda: gateway.app.pending.total_bytes)
    gauge("memory_limit_bytes", "By cgroup or machine.", lambda: gateway.memory_limit_bytes)
    gauge("lingering", "Of these, left by their clients.", lambda: gateway.lingering.total)
    _add_gauges_of_feeds(gateway)
    _add_gauges_of_books(gateway)
    _add_gauges_of_others(gateway)


def _add_gauges_of_feeds(gateway: "Gateway") -> None:
    gauge = gateway.metrics.gauge
    gauge("feed_age_seconds", "Since control answered.", lambda: gateway.control_feed.age_seconds)
    gauge(
        "replica_feed_age_seconds",
        "Since fleet answered.",
        lambda: gateway.replica_feed.age_seconds,
    )
    gauge(
        "state_save_failures",
        "In a row, of what control's feed said.",
        lambda: gateway.control_feed.keeper.failures,
    )
    gauge(
        "feed_rejected",
        "Records that did not validate.",
        gateway.control_feed.follower.counts.rejected.total,
    )


def _add_gauges_of_books(gateway: "Gateway") -> None:
    gauge, counts = gateway.metrics.gauge, gateway.shipper.counts
    gauge("journal_rows", "Events not acknowledged.", lambda: gateway.journal.done_rows)
    gauge("lease_nanos", "Granted and not yet returned.", gateway.poll.granted_nanos)
    gauge("leases", "Leases not yet closed.", lambda: len(gateway.poll.leases))
    gauge("deferred_asks", "Asks put off by billing.", lambda: gateway.poll.counts.deferred)
    gauge("lineage_changes", "Restored databases met.", lambda: gateway.lineage.changes)
    gauge("held_nanos", "Held by requests under way.", gateway.lease_manager.held_nanos)
    gauge("shipped_events", "Events acknowledged.", lambda: counts.shipped)
    gauge("shipment_failures", "Batches not acknowledged.", lambda: counts.failures)
    orphans = gateway.orphans
    gauge(
        "orphan_events",
        "Shipped for dead gateways of this host.",
        lambda: 0 if orphans is None else orphans.shipped,
    )
    gauge("sent_again_events", "Events a new database got.", lambda: counts.sent_again)
    gauge(
        "clock_skew_seconds",
        "By how much this host's clock is ahead of control's.",
        lambda: gateway.clock.skew_seconds,
    )
    gauge("clock_ahead", "Calls refused for our clock.", lambda: gateway.api.clock_ahead_count)
    gauge("journal_damages", "Files set aside.", lambda: len(gateway.journal.damages))
    gauge("journal_unreadable_rows", "Rows set aside.", lambda: gateway.journal.unreadable_rows)
    gauge("kept_bytes", "Acknowledged events kept.", lambda: gateway.journal.kept_bytes)
    gauge("dead_letters", "Events billing could not book.", lambda: counts.dead_lettered)


def _add_gauges_of_others(gateway: "Gateway") -> None:
    gauge = gateway.metrics.gauge
    gauge("share_failures", "Of asking for slots, in a row.", lambda: gateway.demand.failures)
    gauge("gateways_sharing_slots", "By the fleet.", lambda: gateway.shares.live_gateway_count)
    gauge("grammars_unchecked", "Not compiled ahead.", lambda: gateway.grammars.unchecked_count)
    gauge("grammars_unknown", "Refused: not checked.", lambda: gateway.grammars.unknown_count)
    preparation = gateway.preparation
    gauge("preparers_lost", "Processes killed.", lambda: preparation.bench.lost_count)
    gauge("bodies_refused", "Too many waited to be read.", lambda: preparation.refused)
    gauge(
        "bodies_refused_own",
        "Too many of the organization's own waited to be read.",
        lambda: preparation.refused_own,
    )
    finishing = gateway.finishing
    gauge("finishers_lost", "Processes killed.", lambda: finishing.bench.lost_count)
    gauge("answers_unfinished", "Made here, for want of one.", lambda: finishing.unfinished)
    gauge("keyed_endings_untold", "To control.", lambda: gateway.claims.untold_count)
    line = gateway.limiter.line
    gauge(
        "limits_apart",
        "Whether rate limits are held by this gateway's part, without Redis.",
        lambda: not line.is_open,
    )
    gauge("limits_calls", "Calls to Redis for rate limits.", lambda: line.calls)
    gauge("limits_failures", "Of these, without an answer in time.", lambda: line.failures)
    gauge(
        "gateways_sharing_limits",
        "As control or the fleet counts them, whichever more.",
        gateway.live_gateway_count,
    )
    news = gateway.prefix_news
    gauge("prefixes_told", "Prompts, to other gateways.", lambda: news.told)
    gauge("prefixes_untold", "Of which nobody heard.", lambda: news.untold)
    gauge("prefixes_heard", "From other gateways.", lambda: news.heard)
