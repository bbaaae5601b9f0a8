"""A JSON schema of declarations, by which editors complete and check them."""

from typing import Any

from puffin_ann.declaration.fields.parameters import PARAMETERS
from puffin_ann.declaration.index import IndexDeclaration

DEFAULT_ALGORITHM = IndexDeclaration.model_fields["algorithm"].default


def declaration_schema() -> dict[str, Any]:
    """Return the JSON schema of a declaration file.

    A file it refuses may be valid all the same: numbers may be quoted, for one.
    """
    schema = IndexDeclaration.model_json_schema()
    # Its name defaults to the file's stem; the model itself has to be told.
    schema["required"] = [name for name in schema["required"] if name != "name"]
    schema["title"] = "puffin-ann index declaration"
    schema["properties"]["parameters"] = {
        "description": "Parameters of the algorithm.",
        "type": "object",
    }
    schema["allOf"] = [
        _parameters_of(algorithm, model.__name__) for algorithm, model in PARAMETERS.items()
    ]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _parameters_of(algorithm: str, model: str) -> dict[str, Any]:
    """Return the rule that an algorithm's parameters are those of its model."""
    condition: dict[str, Any] = {"properties": {"algorithm": {"const": algorithm}}}
    if algorithm != DEFAULT_ALGORITHM:
        condition["required"] = ["algorithm"]
    return {
        "if": condition,
        "then": {"properties": {"parameters": {"$ref": f"#/$defs/{model}"}}},
    }
