"""Refuse schemas of Avro files that two readers could read differently, or that have no end."""

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    UnknownType,
)

PARTITION = (2, 102)
"""Field ids that lead to the partition of a manifest's entry, which alone is read whole."""


def check_schema(schema: Schema) -> None:
    """Check the schema that a file gives its records.

    A list or map says how many items it has, and any number of items without a byte fits any file:
    a reader would count to it. So each item must take a byte at least, and so must each record.

    A decimal may be written as bytes of a fixed number, or after their number. PyIceberg reads the
    one, and skips the other. Manifests have them in partitions, which are read.

    Raises:
        ValueError: items take no byte, a field's id is given twice beside it, or there is a decimal
            that would be skipped.
    """
    if not _takes_bytes(schema.as_struct()):
        raise ValueError("its records take no byte")
    _check(schema.as_struct())


def _check(kind: IcebergType, *path: int) -> None:
    if isinstance(kind, DecimalType) and path[: len(PARTITION)] != PARTITION:
        raise ValueError("its schema has a decimal where manifests have none")
    if isinstance(kind, StructType):
        ids = [field.field_id for field in kind.fields]
        if len(set(ids)) < len(ids):
            raise ValueError("its schema gives a field id twice")
        for field in kind.fields:
            _check(field.field_type, *path, field.field_id)
    elif isinstance(kind, ListType):
        _check_item(not kind.element_required or _takes_bytes(kind.element_type))
        _check(kind.element_type, *path)
    elif isinstance(kind, MapType):
        optional = not kind.value_required
        _check_item(optional or _takes_bytes(kind.key_type) or _takes_bytes(kind.value_type))
        _check(kind.key_type, *path)
        _check(kind.value_type, *path)


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
