"""What surrounds every request and task: an id, counts, spans; and what no answer lets anybody keep
or learn."""

import gzip
from collections.abc import Iterator

import pytest
import structlog
from django.test import AsyncClient, Client
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from control.api_keys.models import Scope
from control.request_context import RequestContext, current_request, request_context
from control.tasks import chain_audit_events
from control.telemetry import celery_signals, tracing
from control.telemetry.metrics import REGISTRY
from serving.contract.credential import ROLES
from tests.fixtures.credentials import bearer
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.django_db
BEARER = bearer("control")
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans as they would be exported."""
    exporter, made = InMemorySpanExporter(), TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "provider", lambda service: made)
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    yield exporter
    made.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


@pytest.mark.parametrize("path", ["/accounts/login/", "/nowhere", "/api/v1/x", "/internal/v1/feed"])
def test_every_answer_has_an_id_of_its_own_and_is_kept_by_nobody(client: Client, path: str) -> None:
    first, second = (client.get(path, headers={"x-request-id": "mine"}) for _ in range(2))
    assert first.headers["x-request-id"].startswith("req_")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert "no-store" in first.headers["cache-control"]
    assert "private" in first.headers["cache-control"]


def test_pages_and_answers_of_people_are_kept_by_nobody(org: SeededOrganization, base: str) -> None:
    browser = org.browser()
    for path in (f"/{org.id}/overview", base, f"/{org.id}/audit-log.csv", "/admin/"):
        assert "no-store" in browser.get(path).headers["cache-control"], path


def test_static_files_are_kept(client: Client) -> None:
    kept = client.get("/static/console/tokens.css").headers["cache-control"]
    assert "public" in kept
    assert "no-store" not in kept


async def test_asynchronous_answers_have_an_id_too(async_client: AsyncClient) -> None:
    reply = await async_client.get("/accounts/login/")
    assert reply.headers["x-request-id"].startswith("req_")


def test_log_lines_name_the_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def look(*args: object) -> None:
        seen.append(structlog.contextvars.get_contextvars())

    monkeypatch.setattr("control.dataplane.authentication.denial_reason", look)
    reply = client.get("/accounts/login/")
    assert [each["request_id"] for each in seen] == [reply.headers["x-request-id"]]
    assert "request_id" not in structlog.contextvars.get_contextvars()


def test_log_lines_name_whom_they_concern_by_id(
    org: SeededOrganization, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.setattr(
        "control.organizations.access.require",
        lambda *_: seen.append(structlog.contextvars.get_contextvars()),
    )
    _, secret = org.mint(scopes=[Scope.MANAGE])
    org.browser().get(base)
    APIClient(headers={"authorization": f"Bearer {secret}"}).get(base)
    session, key = seen
    assert session["organization_id"] == key["organization_id"] == org.id
    assert session["user_id"] == org.owner.id
    assert str(key["key_id"]).startswith("key_")
    assert "@" not in str(seen)
    assert structlog.contextvars.get_contextvars() == {}


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metrics(client: Client) -> dict[tuple[str, ...], float]:
    reply = client.get("/metrics", headers=BEARER)
    assert reply.status_code == 200
    return samples(reply.content.decode())


def test_requests_are_counted_by_route_and_never_by_path(
    org: SeededOrganization, base: str
) -> None:
    client = org.browser()
    before = metrics(client)
    client.get(f"/{org.id}/api-keys")
    client.get("/org_secret/reset/key/abc")
    client.generic("BREW", "/accounts/login/")
    after = metrics(client)
    route = "route=/<organization:organization_id>/api-keys"
    counted = ("penstock_control_http_requests_total", "method=GET", route, "status=200")
    assert after[counted] - before.get(counted, 0) == 1
    told = str(after.keys())
    assert org.id not in told
    assert "abc" not in told
    assert "BREW" not in told
    timed = ("penstock_control_http_request_duration_seconds_count", "method=GET", route)
    assert after[timed] - before.get(timed, 0) == 1


def test_metrics_tell_of_the_outbox_the_pool_and_the_audit(
    org: SeededOrganization, client: Client
) -> None:
    org.join("viewer")  # by a mail
    found = metrics(client)
    assert found["penstock_outbox_messages_pending", "kind=mail"] >= 1
    assert found[("penstock_audit_events_unchained",)] > 0
    for work in ("customers", "gateways"):
        assert ("penstock_control_db_pool_connections", "state=idle", f"work={work}") in found


def test_only_who_has_a_credential_sees_metrics(org: SeededOrganization, client: Client) -> None:
    assert client.get("/metrics").status_code == 401
    assert org.browser().get("/metrics").status_code == 401
    for role in ROLES:
        assert client.get("/metrics", headers=bearer(role)).status_code == 200
    _, secret = org.mint(scopes=[Scope.MANAGE])
    reply = client.get("/metrics", headers={"authorization": f"Bearer {secret}"})
    assert reply.status_code == 401
    assert b"penstock_control" not in reply.content


def compressed(client: Client, path: str) -> bool:
    reply = client.get(path, headers={"accept-encoding": "gzip"})
    assert reply.status_code == 200, path
    if reply.headers.get("content-encoding") != "gzip":
        return False
    assert len(gzip.decompress(reply.content)) > len(reply.content)
    return True


def test_what_may_be_compressed_is(org: SeededOrganization) -> None:
    client = org.browser()
    assert compressed(client, f"/{org.id}/api-keys")
    assert compressed(client, "/api/v1/schema")


def test_what_holds_secrets_beside_what_others_choose_is_not(org: SeededOrganization) -> None:
    org.owner.set_password("a-long-enough-phrase")
    org.owner.save()
    client = org.browser()
    assert not compressed(Client(), "/accounts/login/?next=/x")
    assert not compressed(client, "/accounts/password/change/")
    form = {"name": "Backend", "project": org.project.id, "scopes": "inference", "expiry": ""}
    reply = client.post(f"/{org.id}/api-keys/new", form, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in reply.headers


def test_a_request_is_a_span_of_the_clients_trace(
    org: SeededOrganization, base: str, spans: InMemorySpanExporter
) -> None:
    reply = org.browser().get(base, headers={"traceparent": CLIENT})
    span = only(spans)
    assert span.name == "GET /api/v1/organizations/<str:organization_id>"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/api/v1/organizations/<str:organization_id>",
        "http.response.status_code": 200,
        "penstock.request_id": reply.headers["x-request-id"],
    }


def test_a_task_is_a_span_of_the_trace_that_asked_for_it(spans: InMemorySpanExporter) -> None:
    sent: dict[str, object] = {}
    with (
        request_context(RequestContext(request_id="req_1")),
        tracing.span("penstock-control", "request", {"traceparent": CLIENT}, is_task=False),
    ):
        celery_signals.propagate_context(headers=sent)
    seen: list[RequestContext] = []
    chain_audit_events.push_request(headers=sent)
    try:
        celery_signals.on_task_start(task_id="t", task=chain_audit_events)
        seen.append(current_request())
        celery_signals.on_task_end(task_id="t", task=chain_audit_events, state="FAILURE")
    finally:
        chain_audit_events.pop_request()
    request, task = spans.get_finished_spans()
    assert task.parent is not None
    assert task.parent.span_id == request.context.span_id
    assert task.name == "audit.chain_events"
    assert dict(task.attributes or {}) == {
        "penstock.task.state": "failure",
        "error.type": "failure",
    }
    assert seen == [RequestContext(request_id="req_1")]
    assert current_request() == RequestContext()


def test_without_an_exporter_nothing_is_sent_along() -> None:
    sent: dict[str, object] = {}
    celery_signals.propagate_context(headers=sent)
    assert "traceparent" not in sent


def test_tasks_are_counted_and_wait_for_no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    chain_audit_events.apply()
    assert celery_signals.run_counts() == []  # the tests' Redis is nobody
    told = [celery_signals.TaskCount("audit.chain_events", "success", 2, 1500)]
    monkeypatch.setattr("control.telemetry.metrics.run_counts", lambda: told)
    found = {
        (sample.name, sample.labels.get("task")): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
    }
    assert found["penstock_worker_tasks_total", "audit.chain_events"] == 2
    assert found["penstock_worker_task_duration_seconds_total", "audit.chain_events"] == 1.5
