"""Find the vector column of a schema, by name once and by field id from then on."""

from dataclasses import dataclass
from typing import Literal

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import DoubleType, FloatType, ListType, NestedField

from puffin_ann.errors import ColumnNotFoundError, UnsupportedColumnError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.data.types_in_words import columns_in_words, type_in_words
from puffin_ann.wording import meant


@dataclass(frozen=True)
class VectorColumn:
    """A top-level column of type `list<float>` or `list<double>`.

    `field_id` finds it in data files whatever it was called when they were written;
    `mapped_names` are its names in files that carry no field ids (from the table's
    `schema.name-mapping.default`), and None where the table has no such mapping.
    """

    field_id: int
    name: str
    element: Literal["float", "double"]
    mapped_names: tuple[str, ...] | None = None


def table_vector_column(table: Table, name: str) -> VectorColumn:
    """Return the vector column of the table's current schema, with its names in files without ids.

    Raises as `vector_column` does; the message names the table.
    """
    return vector_column(table.schema(), name, mapping=table.name_mapping(), owner=name_of(table))


def vector_column(
    schema: Schema, name: str, *, mapping: NameMapping | None = None, owner: str = "the table"
) -> VectorColumn:
    """Return the vector column called `name` in the schema.

    Raises ColumnNotFoundError, which lists the columns there are, and UnsupportedColumnError if it
    is not a list of floating-point numbers.
    """
    field = _top_level(schema, name, owner)
    element = _element(field)
    if element is None:
        raise UnsupportedColumnError(
            f"column {name!r} of {owner} is of type {type_in_words(field.field_type)}; "
            "a vector column is list<float> or list<double>"
        )
    return VectorColumn(
        field_id=field.field_id,
        name=field.name,
        element=element,
        mapped_names=_mapped_names(mapping, field.field_id),
    )


def vector_columns(schema: Schema) -> list[str]:
    """Return the names of the columns that `vector_column` takes, in the schema's order."""
    return [field.name for field in schema.fields if _element(field) is not None]


def _element(field: NestedField) -> Literal["float", "double"] | None:
    """Return what a column lists; None if it is not a list of floating-point numbers."""
    kind = field.field_type
    if not isinstance(kind, ListType):
        return None
    if isinstance(kind.element_type, FloatType):
        return "float"
    return "double" if isinstance(kind.element_type, DoubleType) else None


def _top_level(schema: Schema, name: str, owner: str) -> NestedField:
    for field in schema.fields:
        if field.name == name:
            return field
    raise ColumnNotFoundError(
        f"{owner} has no top-level column {name!r}"
        f"{meant(name, (field.name for field in schema.fields))}; it has: "
        f"{columns_in_words(schema)}"
    )


def _mapped_names(mapping: NameMapping | None, field_id: int) -> tuple[str, ...] | None:
    if mapping is None:
        return None
    return next((tuple(field.names) for field in mapping if field.field_id == field_id), ())
