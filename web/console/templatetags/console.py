"""How templates show money, tokens, moments and icons; the figures themselves are elsewhere."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from control.accounts.trusted_devices import device_name
from serving.contract.money import CENT_NANOS, exact_dollars, format_dollars
from web.console import formatting

register = template.Library()
register.filter("device", device_name)

METER_LABELS = {"input": "Uncached input", "cached_input": "Cached input", "output": "Output"}


@register.filter
def money(nanos: int) -> SafeString:
    """Nanos as dollars for people; the exact amount on hover."""
    exact = exact_dollars(nanos)
    return format_html('<span class="money" title="{}">{}</span>', exact, format_dollars(nanos))


@register.filter
def cents(amount: int) -> SafeString:
    """Cents as dollars for people."""
    return money(amount * CENT_NANOS)


@register.filter
def exact(nanos: int) -> str:
    """Nanos as dollars, no digit rounded away."""
    return exact_dollars(nanos)


@register.filter
def per_million(nanos: int) -> str:
    """A price per million tokens, exact."""
    return exact_dollars(nanos)


@register.filter
def count(number: int) -> str:
    """A whole number with thousands set apart."""
    return formatting.count(number)


@register.filter
def compact(number: int) -> SafeString:
    """A large number in three digits; exact on hover."""
    exact = formatting.count(number)
    return format_html('<span title="{}">{}</span>', exact, formatting.compact(number))


@register.filter
def lines(value: str | list[str]) -> str:
    """Several values in one line; one is itself."""
    return value if isinstance(value, str) else ", ".join(value)


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds in their natural unit."""
    return formatting.duration(seconds)


@register.filter
def percent(share: float) -> str:
    """A share of one in percent."""
    return formatting.percent(share)


@register.filter
def ago(at: datetime | None) -> SafeString | str:
    """A moment as distance from now; the absolute one, in UTC, on hover."""
    if at is None:
        return "never"
    iso, exact = at.astimezone(UTC).isoformat(), formatting.moment(at)
    words = formatting.ago(at, timezone.now())
    return format_html('<time datetime="{}" title="{}">{}</time>', iso, exact, words)


@register.filter
def utc(at: datetime) -> str:
    """A moment in full, in UTC."""
    return formatting.moment(at)


@register.filter
def meter_label(meter: str) -> str:
    """The name of a meter, for people."""
    return METER_LABELS.get(meter, meter)


@register.filter
def svg_url(svg: str) -> str:
    """A picture as an address of its own: whatever it holds, nothing in it runs."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


@register.filter
def initial(name: str) -> str:
    """The letter that stands for a name."""
    return name.strip()[:1].upper() or "?"


@register.simple_tag
def icon(name: str) -> SafeString:
    """One of our icons; decoration, so hidden from readers of the page."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>',
        static("console/icons.svg"),
        name,
    )


@register.inclusion_tag("console/copy.html")
def copy_button(text: str, what: str) -> dict[str, str]:
    """A button that copies `text`; `what` names it for readers of the page."""
    return {"text": text, "what": what}


@register.simple_tag
def console_url(page: Any, section: str, *arguments: str, **parameters: str) -> str:
    """The address of a section of the console, in the page's organization and project."""
    return str(page.url(section, *arguments, **parameters))
