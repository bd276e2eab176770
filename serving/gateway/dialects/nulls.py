"""Null means absent, on every field of a closed type, be it one that we do not know.

Clients write out the fields that they know of, null where nobody set them. Only the fields of our
own types are looked at: a null within a schema, arguments or metadata is the client's.
"""

from typing import Any

from msgspec.inspect import ListType, Metadata, StructType, Type, UnionType

Fields = dict[str, "Shape | None"]


class Shape:
    """Where the closed types within a value are: in its items, or as its own fields, which differ
    by the value of `tag` where there are several types."""

    def __init__(self) -> None:
        self.items: Shape | None = None
        self.tag: str | None = None
        self.structs: dict[Any, Fields] = {}


def drop_nulls(value: Any, shape: Shape | None) -> None:
    """Remove the nulls from the fields of closed types, in time linear in the value's size."""
    if shape is None:
        return
    if isinstance(value, list):
        for item in value:
            drop_nulls(item, shape.items)
    elif isinstance(value, dict) and shape.structs:
        for name in [name for name, field in value.items() if field is None]:
            del value[name]
        fields = _fields(value, shape)
        for name, field in value.items():
            if (inner := fields.get(name)) is not None:
                drop_nulls(field, inner)


def _fields(value: dict[str, Any], shape: Shape) -> Fields:
    """Return the fields of the type that a value has; none where it has none of the types."""
    if shape.tag is None:
        return shape.structs[None]
    tag = value.get(shape.tag)
    return shape.structs.get(tag, {}) if isinstance(tag, str) else {}


def shape_of(kind: Type) -> Shape | None:
    """Return where closed types are within a type."""
    shape = Shape()
    for one in kind.types if isinstance(kind, UnionType) else (kind,):
        plain = one.type if isinstance(one, Metadata) else one
        if isinstance(plain, ListType):
            shape.items = shape_of(plain.item_type)
        elif isinstance(plain, StructType):
            shape.tag = plain.tag_field
            shape.structs[plain.tag] = {
                field.encode_name: shape_of(field.type) for field in plain.fields
            }
    return shape if shape.items is not None or shape.structs else None
