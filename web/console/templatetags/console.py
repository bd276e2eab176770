"""Template filters and tags for money, tokens, times and icons."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from django import template
from django.db import models
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.accounts.trusted_devices import device_name
from serving.contract.money import CENT_NANOS, exact_dollars, format_dollars
from web.console import formatting

register = template.Library()
register.filter("device", device_name)

BADGES = {
    **dict.fromkeys(("active", "open", "enabled"), "badge-good"),
    **dict.fromkeys(("expired", "failing"), "badge-warn"),
    "disabled_by_platform": "badge-bad",
}
"""The color of a state; neutral where none is named."""
METER_LABELS = {
    "input": _("Uncached input"),
    "cached_input": _("Cached input"),
    "output": _("Output"),
}


@register.filter
def money(nanos: int) -> SafeString:
    """Format nano-dollars, with the exact amount on hover."""
    exact = exact_dollars(nanos)
    return format_html('<span class="money" title="{}">{}</span>', exact, format_dollars(nanos))


@register.filter
def cents(amount: int) -> SafeString:
    """Format cents like `money`."""
    return money(amount * CENT_NANOS)


@register.filter
def exact(nanos: int) -> str:
    """Format nano-dollars without rounding."""
    return exact_dollars(nanos)


@register.filter
def per_million(nanos: int) -> str:
    """Format a price per million tokens without rounding."""
    return exact_dollars(nanos)


@register.filter
def count(number: int) -> str:
    """Format a whole number with thousands separators."""
    return formatting.count(number)


@register.filter
def compact(number: int) -> SafeString:
    """Format a large number with three digits, with the exact one on hover."""
    exact = formatting.count(number)
    return format_html('<span title="{}">{}</span>', exact, formatting.compact(number))


@register.filter
def lines(value: str | list[str]) -> str:
    """Join several values with commas; return a single one as it is."""
    return value if isinstance(value, str) else ", ".join(value)


@register.filter
def duration(seconds: float | None) -> str:
    """Format seconds in a suitable unit."""
    return formatting.duration(seconds)


@register.filter
def percent(share: float) -> str:
    """Format a fraction in percent."""
    return formatting.percent(share)


@register.filter
def ago(at: datetime | None) -> SafeString | str:
    """Format a time relative to now, with the UTC timestamp on hover."""
    if at is None:
        return gettext("never")
    iso, exact = at.astimezone(UTC).isoformat(), formatting.moment(at)
    words = formatting.ago(at, timezone.now())
    return format_html('<time datetime="{}" title="{}">{}</time>', iso, exact, words)


@register.filter
def badge(state: models.TextChoices) -> SafeString:
    """Render a thing's state in the color of what it means."""
    kind = BADGES.get(state, "")
    return format_html('<span class="badge {}">{}</span>', kind, state.label)


@register.filter
def utc(at: datetime) -> str:
    """Format a full UTC timestamp."""
    return formatting.moment(at)


@register.filter
def meter_label(meter: str) -> str:
    """Return the label of a meter."""
    return str(METER_LABELS.get(meter, meter))


@register.filter
def svg_url(svg: str) -> str:
    """Return an SVG image as a data URL, in which no script runs."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


@register.filter
def initial(name: str) -> str:
    """Return the initial of a name."""
    return name.strip()[:1].upper() or "?"


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return a decorative icon, hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>',
        static("console/icons.svg"),
        name,
    )


@register.inclusion_tag("console/copy.html")
def copy_button(text: str, what: str) -> dict[str, str]:
    """Render a button that copies `text`; `what` names it for screen readers."""
    return {"text": text, "what": what}


@register.simple_tag
def console_url(page: Any, section: str, *arguments: str, **parameters: str) -> str:
    """Return the URL of a section, in the page's organization and project."""
    return str(page.url(section, *arguments, **parameters))
