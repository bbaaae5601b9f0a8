"""Say what is wrong with the fields of a declaration: which, the value, and what is allowed."""

from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from puffin_ann.declaration.fields.model import Model
from puffin_ann.declaration.fields.names import NAME, TABLE_NAME
from puffin_ann.declaration.fields.options import DURATION, POSITIVE_DURATION
from puffin_ann.declaration.fields.spark import LISTED, VARIABLE
from puffin_ann.redaction import is_secret_name
from puffin_ann.wording import meant, refusal_in_words

LONGEST_SHOWN = 200
"""Characters of a refused value that an error repeats."""

_OF_PATTERNS = {
    NAME: "it should begin with a lower-case letter and have up to 62 more, digits or '_'",
    TABLE_NAME: "it should be a catalog, a namespace and a table, as in 'lake.shop.products'",
    DURATION: "it should be a whole number of up to six digits and s, m, h or d, as in '15m'",
    POSITIVE_DURATION: "it should be a whole number above 0, of up to six digits, and s, m, h or "
    "d, as in '15m'",
    VARIABLE: "it should be the name of a variable: letters, digits and '_', no digit first",
    LISTED: "it should be one entry, without a comma",
}


def in_words(item: ErrorDetails) -> str:
    """Return what pydantic found of a value, in the words of whoever writes YAML."""
    if item["type"] == "string_pattern_mismatch":
        known = _OF_PATTERNS.get(item["ctx"]["pattern"])
        if known:
            return known
    return refusal_in_words(item)


def complaints_of(
    error: ValidationError, model: type[Model], what: str, prefix: str = ""
) -> Iterable[str]:
    """Say what is wrong with each field of a model, and which fields there are at an unknown one.

    Args:
        error: all that pydantic found.
        model: what was validated.
        what: names its fields.
        prefix: comes before the names of its fields in the declaration.
    """
    for item in error.errors():
        field = prefix + ".".join(str(part) for part in item["loc"])
        message = in_words(item)
        if item["type"] == "value_error" and not item["loc"]:
            yield message
        elif item["type"] == "missing":
            yield f"field {field!r} is missing"
        elif item["type"] == "extra_forbidden":
            yield f"field {field!r} is unknown{_known(model, what, item['loc'])}"
        elif is_secret_name(field):
            yield f"field {field!r}: what is given is not allowed: {message}"
        else:
            yield f"field {field!r}: {_shown(item['input'])} is not allowed: {message}"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes out no number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _known(model: type[Model], what: str, place: tuple[int | str, ...]) -> str:
    """Say which field was probably meant, and which there are where a path of names leads to."""
    *path, unknown = place
    for name in path:
        field = model.model_fields.get(str(name))
        if field is None or not isinstance(field.annotation, type):
            return ""  # parameters of no algorithm that there is, which is said apart
        model = field.annotation
    what = f"fields of {'.'.join(map(str, path))!r}" if path else what
    question = meant(str(unknown), model.model_fields)
    return f"{question}; known {what} are: {', '.join(model.model_fields) or 'none'}"
