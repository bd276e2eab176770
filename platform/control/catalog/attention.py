"""Failed replicas on the page of alarms."""

from collections.abc import Collection
from datetime import datetime

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from control.alarms.catalogue import evidence_url
from control.catalog.selectors import failures

FAILURES_SHOWN = 5


def failed_replicas(request: HttpRequest, since: datetime, kinds: Collection[str]) -> SafeString:
    """Return the latest failures of replicas since a time as items of a list."""
    found = list(failures().filter(noticed_at__gte=since)[:FAILURES_SHOWN])
    context = {"failures": found, "url": evidence_url("replica failures")}
    return render_to_string("catalog/failed_replicas.html", context) if found else SafeString()
