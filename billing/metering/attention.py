"""Open dead letters, lease overruns and silent gateways, on the page of alarms."""

from collections.abc import Collection
from datetime import datetime

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from billing.metering.waiting import open_letter_count, silent_gateways, unseen_overruns
from control.alarms.catalogue import admin_url, evidence_url
from serving.contract.money import exact_dollars, format_dollars


def usage_to_look_at(request: HttpRequest, since: datetime, kinds: Collection[str]) -> SafeString:
    """Return dead letters, silent gateways, and overruns of leases granted since a time, as items
    of a list."""
    letter_count, silent = open_letter_count(), silent_gateways(timezone.now())
    overruns = unseen_overruns(since) if "lease_overrun" in kinds else ()
    if not (letter_count or silent or overruns):
        return SafeString()
    context = {
        "letter_count": letter_count,
        "letters_url": evidence_url("dead letters"),
        "overruns": [
            {"lease": lease, "over": format_dollars(lease.settled_nanos - lease.granted_nanos)}
            for lease in overruns
        ],
        "silent": [
            {
                "gateway": gateway,
                "held": format_dollars(gateway.held_nanos),
                "held_exact": exact_dollars(gateway.held_nanos),
                "url": admin_url("credit_lease_changelist", q=gateway.gateway_id),
            }
            for gateway in silent
        ],
        "may_release": request.user.has_perm("credit.change_lease"),
    }
    return render_to_string("metering/attention.html", context)
