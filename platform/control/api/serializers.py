"""Base serializers of the management API."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError


class ClosedSerializer(serializers.Serializer[Any]):
    """Rejects unknown and read-only fields instead of ignoring them."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError naming an unknown field."""
        if isinstance(data, dict):
            settable = {name for name, field in self.fields.items() if not field.read_only}
            for name in data:
                if name not in settable:
                    detail = ErrorDetail(f"{name} cannot be set.", code="unknown_parameter")
                    raise ValidationError({name: [detail]})
        return super().to_internal_value(data)

    @classmethod
    def read(cls, data: Any, *, partial: bool = False) -> dict[str, Any]:
        """Return the validated values of a body. Raises ValidationError."""
        serializer = cls(data=data, partial=partial)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class ErrorSerializer(serializers.Serializer[Any]):
    """The four keys of an error; some errors have facts in `metadata` too."""

    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)
    metadata = serializers.DictField(required=False)


class ErrorBodySerializer(serializers.Serializer[Any]):
    """The body of every response with a status of 400 or more."""

    error = ErrorSerializer()
