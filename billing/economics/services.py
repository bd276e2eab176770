"""Taking engine samples in, once each, and thinning the old ones out."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog
from django.db import connection, transaction
from django.utils.translation import gettext

from billing.economics.models import EngineLife
from control.catalog.models import Deployment
from control.catalog.retirement import references_requested
from serving.contract.engine_counters import CountersReply, CountersRequest

THINNED_AFTER = timedelta(days=7)
"""Samples older than this are kept by the hour."""

SENT = """
jsonb_to_recordset(%(samples)s::jsonb) AS sent (
    replica_id text, deployment_id text, started_at timestamptz, at timestamptz,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, requests bigint,
    probe_input_tokens bigint, probe_output_tokens bigint, probe_requests bigint,
    ready_seconds bigint, busy_seconds bigint, is_last boolean
)
"""

# Know the replicas that are new. Sorted, so that two requests wait for each other in one order.
ADD_LIVES = f"""
INSERT INTO economics_engine_life (replica_id, deployment_id, fleet_id, started_at)
SELECT DISTINCT ON (replica_id) replica_id, deployment_id, %(fleet_id)s, started_at
FROM {SENT} ORDER BY replica_id, at
ON CONFLICT (replica_id) DO NOTHING
"""  # noqa: S608 -- constants of this module

# Keep the samples that are new, each with what its replica costs now.
ADD_SAMPLES = f"""
INSERT INTO economics_engine_sample (
    life_id, at, input_tokens, output_tokens, cached_tokens, requests, probe_input_tokens,
    probe_output_tokens, probe_requests, ready_seconds, busy_seconds, hourly_cost_nanos
)
SELECT life.id, sent.at, sent.input_tokens, sent.output_tokens, sent.cached_tokens, sent.requests,
    sent.probe_input_tokens, sent.probe_output_tokens, sent.probe_requests, sent.ready_seconds,
    sent.busy_seconds, deployment.hourly_cost_nanos
FROM {SENT} JOIN economics_engine_life life USING (replica_id)
LEFT JOIN catalog_deployment deployment ON deployment.id = life.deployment_id
ORDER BY life.id, sent.at
ON CONFLICT (life_id, at) DO NOTHING
"""  # noqa: S608 -- constants of this module

# Note which replicas have ended.
END_LIVES = f"""
UPDATE economics_engine_life life SET ended_at = sent.at
FROM {SENT} WHERE life.replica_id = sent.replica_id AND sent.is_last AND life.ended_at IS NULL
"""  # noqa: S608 -- constants of this module

# Of each hour before %(before)s keep a life's first sample, and of each life its last: counters
# only grow, so what lies between them is lost to nobody.
THIN = """
DELETE FROM economics_engine_sample inner_one WHERE at < %(before)s
AND EXISTS (
    SELECT FROM economics_engine_sample one
    WHERE one.life_id = inner_one.life_id AND one.at < inner_one.at
    AND one.at >= date_trunc('hour', inner_one.at, 'UTC')
)
AND EXISTS (
    SELECT FROM economics_engine_sample one
    WHERE one.life_id = inner_one.life_id AND one.at > inner_one.at
)
"""

logger = structlog.get_logger(__name__)


@transaction.atomic
def accept_samples(request: CountersRequest) -> CountersReply:
    """Keep each sample once by its replica and moment; what came before is counted, not kept."""
    values = {
        "fleet_id": request.fleet_id,
        "samples": msgspec.json.encode(request.samples).decode(),
    }
    with connection.cursor() as cursor:
        cursor.execute(ADD_LIVES, values)
        cursor.execute(ADD_SAMPLES, values)
        accepted = cursor.rowcount
        cursor.execute(END_LIVES, values)
    return CountersReply(accepted=accepted, duplicates=len(request.samples) - accepted)


@transaction.atomic
def thin_samples(*, now: datetime) -> int:
    """Leave one sample per replica and hour of those older than THINNED_AFTER; return how many
    went. Safe to run twice at once."""
    with connection.cursor() as cursor:
        cursor.execute(THIN, {"before": now - THINNED_AFTER})
        return cursor.rowcount


def listen() -> None:
    """Keep deployments whose replicas were counted."""
    references_requested.connect(_references, sender=Deployment, dispatch_uid="economics")


def _references(*, row: Deployment, **_: Any) -> list[str]:
    is_counted = EngineLife.objects.filter(deployment_id=row.id).exists()
    return [gettext("Figures of its replicas are kept.")] if is_counted else []
