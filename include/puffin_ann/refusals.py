"""What pydantic says of a value that it refuses, in the words of whoever gave it."""

from pydantic_core import ErrorDetails

_OF_TYPES = {
    "int_type": "it should be a whole number",
    "int_parsing": "it should be a whole number",
    "int_from_float": "it should be a whole number",
    "float_type": "it should be a number",
    "float_parsing": "it should be a number",
    "bool_type": "it should be true or false",
    "bool_parsing": "it should be true or false",
    "string_type": "it should be text",
    "tuple_type": "it should be a list",
    "list_type": "it should be a list",
    "dict_type": "it should be a mapping",
    "model_type": "it should be a mapping of fields",
}


def refusal_in_words(item: ErrorDetails) -> str:
    """Return what is wrong with a value."""
    told = _OF_TYPES.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    return told.replace("Input should", "it should").replace("String should", "it should")
