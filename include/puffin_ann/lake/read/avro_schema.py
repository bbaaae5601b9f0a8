"""Refuse schemas of Avro files that two readers could read differently, or that have no end."""

from pyiceberg.schema import Schema
from pyiceberg.types import (
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    UnknownType,
)


def check_schema(schema: Schema) -> None:
    """Check the schema that a file gives its records.

    A list or map says how many items it has, and any number of items without a byte fits any file:
    a reader would count to it. So each item must take a byte at least, and so must each record.

    Raises:
        ValueError: items take no byte, or a field's id is given twice beside it.
    """
    if not _takes_bytes(schema.as_struct()):
        raise ValueError("its records take no byte")
    _check(schema.as_struct())


def _check(kind: IcebergType) -> None:
    if isinstance(kind, StructType):
        ids = [field.field_id for field in kind.fields]
        if len(set(ids)) < len(ids):
            raise ValueError("its schema gives a field id twice")
        for field in kind.fields:
            _check(field.field_type)
    elif isinstance(kind, ListType):
        _check_item(not kind.element_required or _takes_bytes(kind.element_type))
        _check(kind.element_type)
    elif isinstance(kind, MapType):
        optional = not kind.value_required
        _check_item(optional or _takes_bytes(kind.key_type) or _takes_bytes(kind.value_type))
        _check(kind.key_type)
        _check(kind.value_type)


def _check_item(takes_bytes: bool) -> None:
    if not takes_bytes:
        raise ValueError("its schema has lists or maps of items that take no byte")


def _takes_bytes(kind: IcebergType) -> bool:
    """Tell whether each value of a type takes at least a byte."""
    if isinstance(kind, StructType):
        # Of a field that may be null a byte says whether it is.
        return any(not field.required or _takes_bytes(field.field_type) for field in kind.fields)
    if isinstance(kind, FixedType):
        return len(kind) > 0
    return not isinstance(kind, UnknownType)
