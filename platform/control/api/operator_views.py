"""The base of the operators' API, `/api/v1/admin/`: views for operator tokens only, serializers
whose errors name the value, and its pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.db import models
from django.utils.module_loading import import_string
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.validators import UniqueValidator

from control.api.errors import CODES, first_error
from control.api.pagination import invalid_value
from control.api.serializers import ClosedSerializer
from control.api.versions import is_conditional
from control.db.models import ID_MAX
from control.errors import InvalidValue
from control.permissions import Actor, Permission, require_operator


@dataclass(frozen=True, slots=True)
class OperatorPrincipal:
    """`request.user` for an operator token: authenticated, but not a person."""

    actor: Actor
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False
    is_staff: bool = False

    @property
    def key_id(self) -> str | None:
        """The token's id, by which calls and idempotency keys are counted."""
        return self.actor.token_id


class OperatorSerializer(ClosedSerializer):
    """A body of the operators' API. Errors name the field, its value and what was wanted."""

    @classmethod
    def read(cls, data: Any, *, partial: bool = False) -> dict[str, Any]:
        """Return the validated values of a body. Raises InvalidValue."""
        try:
            return super().read(data, partial=partial)
        except ValidationError as error:
            param, detail = first_error(error.detail)
            code, name = CODES.get(str(detail.code)), (param or "").partition(".")[0]
            if code or not isinstance(data, dict) or name not in data:
                is_named = code == "unknown_parameter"
                message = str(detail) if is_named else f"{param or 'body'}: {detail}"
                raise InvalidValue(message, param=param, code=code) from error
            raise invalid_value(name, data[name], str(detail)) from error


class BoundedFloatField(serializers.FloatField):
    """A number; one that no float can hold is an error, not a failure."""

    def to_internal_value(self, data: Any) -> float:
        """Return the number. Raises ValidationError."""
        try:
            return super().to_internal_value(data)
        except OverflowError:
            self.fail("invalid")


class RowSerializer(OperatorSerializer, serializers.ModelSerializer[Any]):
    """A row of a table; the table's columns set the types and bounds of its fields. Whether it is
    unique is left to the service, which knows the row that changes."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.FloatField: BoundedFloatField,
    }

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        """Return a column's field and its options."""
        kind, options = super().build_standard_field(field_name, model_field)
        checks = options.pop("validators", [])
        if kept := [check for check in checks if not isinstance(check, UniqueValidator)]:
            options["validators"] = kept
        return kind, options

    def get_unique_together_constraints(self, model: Any) -> Iterator[Any]:
        """Return no constraints."""
        return iter(())


class RowIdField(serializers.CharField):
    """The id of a row of another table, read as the row."""

    def __init__(self, model: type[models.Model], **options: Any) -> None:
        self.model = model
        super().__init__(max_length=ID_MAX, **options)

    def to_internal_value(self, data: Any) -> Any:
        """Return the row. Raises ValidationError if there is none."""
        row_id = super().to_internal_value(data)
        self.run_validators(row_id)
        row = self.model._default_manager.filter(pk=row_id).first()
        if row is None:
            raise ValidationError(f"There is no such {self.model._meta.verbose_name}.")
        return row

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Return the row, None for null."""
        is_empty, value = self.validate_empty_values(data)
        return value if is_empty else self.to_internal_value(data)

    def to_representation(self, value: Any) -> str:
        return str(value.pk)


class OperatorApiView(GenericAPIView[Any]):
    """A view of the operators' API. Reads need `platform:read`, writes `write_permission`, writes
    with `If-Match` both, of both the token and its creator's present role."""

    ordering: tuple[str, ...] = ("-created_at", "id")
    write_permission = Permission.OPERATORS_WRITE

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return the authentication of operator tokens, which a layer above has."""
        return [import_string(settings.OPERATOR_AUTHENTICATION)()]

    def check_permissions(self, request: Request) -> None:
        """Raise NotPermitted where the token or the role lacks the permission."""
        super().check_permissions(request)
        is_read = request.method in SAFE_METHODS
        if not is_read:
            require_operator(self.actor, self.write_permission)
        if is_read or is_conditional(request):
            require_operator(self.actor, Permission.PLATFORM_READ)

    @property
    def actor(self) -> Actor:
        """The operator who acts, with their token."""
        return cast(OperatorPrincipal, self.request.user).actor

    def filters(self, serializer: type[OperatorSerializer]) -> dict[str, Any]:
        """Return the query's filters. Raises InvalidValue, also for an unknown one."""
        sent = self.request.query_params.dict()
        return serializer.read({name: sent[name] for name in sent.keys() - {"limit", "after"}})

    def filtered_page(
        self, rows: Any, filters: type[OperatorSerializer] = OperatorSerializer
    ) -> Response:
        """Return a page of the rows whose columns have the values that the query names."""
        return self.page(rows.filter(**self.filters(filters)))

    def page(self, rows: Any) -> Response:
        """Return a page of rows."""
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def shown(self, row: Any, *, status: int = 200) -> Response:
        """Return a row."""
        return Response(self.get_serializer(row).data, status=status)
