"""The operator's lists of what belongs to organizations, whichever room it is of."""

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html

from control.admin.base import OperatorAdmin
from control.admin.fields import NOTHING
from control.tenants.selectors import organizations


class OwnedAdmin(OperatorAdmin):
    """Lists of rows that keep an organization's id: `owner` is its name, the id on hover."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with their organizations' names."""
        mine = organizations().filter(id=OuterRef("organization_id")).order_by()
        return super().get_queryset(request).annotate(owner_name=Subquery(mine.values("name")[:1]))

    @admin.display(description="Organization", empty_value=NOTHING)
    def owner(self, row: Any) -> str:
        """Return whose it is; the id alone where there is no such organization."""
        name = row.owner_name or row.organization_id
        return name and format_html('<span title="{}">{}</span>', row.organization_id, name)
