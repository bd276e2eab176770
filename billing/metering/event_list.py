"""What keeps the list of usage events quick however many there are: a window of days, filters that
ask nobody which values occur, and a count that stops where nobody pages on."""

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from serving.contract.ids import id_floor
from serving.contract.usage import OUTCOMES

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

COUNTED_MAX = 10_000
FAULTS = ("foreign_caller", "unknown_price", "foreign_price", "early_price")


class PatientPaginator(Paginator):
    """Counts so far as anybody pages."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most COUNTED_MAX."""
        rows: Any = self.object_list
        return int(rows[:COUNTED_MAX].count())


class Listed(SimpleListFilter):
    """A filter of known values on the column of its name."""

    values: tuple[str, ...] = ()

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> list[tuple[str, str]]:
        """Return the values with their words."""
        return [(value, value.replace("_", " ").capitalize()) for value in self.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        """Keep the rows of the value chosen."""
        value = self.value()
        known = value in self.values
        return queryset.filter(**{str(self.parameter_name): value}) if known else queryset


class OutcomeFilter(Listed):
    """How requests ended."""

    title = _("outcome")
    parameter_name = "outcome"
    values = OUTCOMES


class FaultFilter(Listed):
    """Why usage was not charged."""

    title = _("fault")
    parameter_name = "fault"
    values = FAULTS


class WithinFilter(SimpleListFilter):
    """How long ago requests were received, a day unless told. Whoever searches means all days."""

    title = _("received within")
    parameter_name = "within"
    days = {"": 1, "7": 7, "30": 30, "all": None}

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin
    ) -> "list[tuple[str, StrOrPromise]]":
        """Return the choices beyond the usual one."""
        return [("7", _("7 days")), ("30", _("30 days")), ("all", _("Any time"))]

    def choices(self, changelist: Any) -> Any:
        """Return the choices, the usual one by its name."""
        first, *others = super().choices(changelist)
        return [{**first, "display": _("1 day")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        """Keep the rows of the days chosen: an id begins with its moment."""
        days = self.days.get(self.value() or "", 1)
        if days is None or request.GET.get("q"):
            return queryset
        since = timezone.now() - timedelta(days=days)
        return queryset.filter(event_id__gte=id_floor(since))


class LetterFilter(SimpleListFilter):
    """What became of dead letters."""

    title = _("status")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin
    ) -> "list[tuple[str, StrOrPromise]]":
        """Return the statuses."""
        return [("open", _("Open")), ("booked", _("Recorded")), ("dismissed", _("Dismissed"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        """Keep the letters of the state chosen."""
        match self.value():
            case "open":
                return queryset.filter(booked_at__isnull=True, dismissed_at__isnull=True)
            case "booked":
                return queryset.filter(booked_at__isnull=False)
            case "dismissed":
                return queryset.filter(dismissed_at__isnull=False)
            case _:
                return queryset
