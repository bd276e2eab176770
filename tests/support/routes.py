"""Every address of control, walked from the URL table: a new one is tried without being named."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from django.urls import URLPattern, URLResolver, get_resolver

from serving.contract.ids import new_id

PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>|\(\?P<(\w+)>[^)]*\)")
"""`<str:name>` of a path, `(?P<name>…)` of a regular expression."""
OF_KIND = {"int": "1", "uuid": new_id()}
APP = "tenants"
"""What the admin takes for an `app_label`."""


@dataclass(frozen=True)
class Route:
    """One address as the table has it."""

    template: str

    @property
    def room(self) -> str:
        """The first word of the address."""
        first = self.template.split("/")[0]
        return "console" if first.startswith("<") or not first else first

    @property
    def parameters(self) -> list[str]:
        """What the address takes."""
        return [found[2] or found[3] for found in PARAMETER.finditer(self.template)]

    def path(self, values: Mapping[str, str]) -> str:
        """Return the address with these values, quoted already, and harmless ones elsewhere."""

        def value(found: re.Match[str]) -> str:
            name = found[2] or found[3]
            return values.get(name) or OF_KIND.get(found[1] or "", "x")

        plain = re.sub(r"[\^$\\]|\?$", "", PARAMETER.sub(value, self.template))
        return f"/{plain}"


@cache
def routes(*rooms: str) -> tuple[Route, ...]:
    """Return all addresses, or those of some rooms."""
    found = dict.fromkeys(_walk(get_resolver()))
    return tuple(each for each in map(Route, found) if not rooms or each.room in rooms)


def _walk(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for each in resolver.url_patterns:
        template = before + str(each.pattern)
        if isinstance(each, URLPattern):
            yield template
        else:
            yield from _walk(each, template)
