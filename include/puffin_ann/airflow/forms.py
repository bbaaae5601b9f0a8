"""Trigger forms: made of the models of a declaration, with their bounds, and read by the plans."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from airflow.sdk import Context, Param
from pydantic import BaseModel

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import BadInputError

BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
)
"""Keywords of a JSON schema that are taken over as they are."""

LINEAGE = "openlineage"
"""What Airflow adds to the values of a run that a task of another DAG asked for."""


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schemas of a model's fields, by name."""
    fields: dict[str, Any] = model.model_json_schema().get("properties", {})
    return fields


def bounds_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a trigger form needs of a field's JSON schema: types, bounds, description."""
    options = schema.get("anyOf", [schema])
    bounds: dict[str, Any] = {"type": [option["type"] for option in options]}
    for option in options:
        bounds |= {name: option[name] for name in BOUNDS if name in option}
    allowed = [value for option in options for value in _allowed(option)]
    if allowed:
        bounds["enum"] = [*allowed, *([None] if "null" in bounds["type"] else [])]
    bounds["description"] = schema.get("description", "")
    return bounds


def _allowed(schema: dict[str, Any]) -> list[Any]:
    allowed: list[Any] = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return allowed


def checkbox(description: str) -> Param:
    """Return a box of a trigger form that is not ticked."""
    return Param(False, type="boolean", description=description)


def force_form(_: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form of a DAG that refreshes."""
    return {"force": checkbox("Publish changes however few they are.")}


def values_of(context: Context, offered: Iterable[str]) -> dict[str, Any]:
    """Return the values that a run was given.

    Airflow checks those that the form offers, and hands on any others.

    Raises:
        BadInputError: others were given; names them, and those that there are.
    """
    given = dict(context["params"])
    given.pop(LINEAGE, None)
    allowed = list(offered)
    unknown = [name for name in given if name not in allowed]
    if unknown:
        raise BadInputError(
            f"the run was given {', '.join(map(repr, unknown))}, which its form does not have; it "
            f"has: {', '.join(allowed)}"
        )
    return given
