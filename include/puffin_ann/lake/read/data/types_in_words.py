"""Types of columns as people write them: PyIceberg's words for them tell ids of fields, too."""

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType


def type_in_words(kind: IcebergType) -> str:
    """Return a type, of a struct with the names and types of its fields."""
    if isinstance(kind, StructType):
        fields = (f"{field.name}: {type_in_words(field.field_type)}" for field in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, ListType):
        return f"list<{type_in_words(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_in_words(kind.key_type)}, {type_in_words(kind.value_type)}>"
    return str(kind)


def columns_in_words(schema: Schema) -> str:
    """Return the columns of a schema with their types."""
    return ", ".join(f"{field.name} ({type_in_words(field.field_type)})" for field in schema.fields)
