"""Conditions as most are written, read without PyIceberg's parser, which takes milliseconds.

What is not understood here at once, or may be wrong, is left to the parser: names in quotes, like,
not, true and false, a value before its column, values of a type that the column is not of.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pyiceberg.expressions.literals import DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from puffin_ann.lake.read.conditions.text import MOST_CHARACTERS
from puffin_ann.lake.read.conditions.tree import (
    Leaf,
    Node,
    Op,
    all_of,
    any_of,
    none_of,
    one_of,
)
from puffin_ann.lake.read.conditions.values import Beyond, fitted

MOST_NESTED = 16
"""Parentheses within each other."""

_TOKEN = re.compile(
    r"""[ \n\r]*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_$]*)(?![\w$.])
    | (?P<whole>[+-]?[0-9]+)(?![\w.])
    | (?P<decimal>[+-]?[0-9]+\.[0-9]+)(?![\w.])
    | '(?P<text>[^'\\\t\n\r]*)'(?!')
    | (?P<sign><=|>=|==|!=|<>|[<>=](?![<>=])|[(),])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_WORDS = frozenset(
    ("and", "or", "not", "is", "in", "null", "nan", "like", "between", "true", "false")
)
_COMPARED = {"<": Op.LESS, "<=": Op.AT_MOST, ">": Op.MORE, ">=": Op.AT_LEAST}
_EQUAL, _DIFFERENT = ("=", "=="), ("!=", "<>")


def quick_tree(where: str, schema: Schema) -> Node | None:
    """Return what a text says of rows of a schema; None: ask PyIceberg's parser."""
    if len(where) > MOST_CHARACTERS or "\t" in where:
        return None
    tokens = []
    at = 0
    while True:
        token = _TOKEN.match(where, at)
        if token is None or token.lastgroup is None:
            return None
        tokens.append((token.lastgroup, token[token.lastgroup]))
        if token.lastgroup == "end":
            break
        at = token.end()
    fields = {field.name: field for field in schema.fields}
    try:
        reader = _Reader(tokens, fields)
        found = reader.any_of(0)
    except _NotUnderstoodError:
        return None
    return found if reader.kind == "end" else None


class _NotUnderstoodError(Exception):
    """What is written is left to the parser."""


class _Reader:
    """Reads from one token to the next.

    Args:
        tokens: kind and content of each; the last is of kind `end`.
        fields: top-level columns by name.
    """

    def __init__(self, tokens: list[tuple[str, str]], fields: Mapping[str, NestedField]) -> None:
        self._tokens, self._fields = iter(tokens), fields
        self._values_read: dict[tuple[str, str, IcebergType], Any] = {}
        self.kind, self._content = next(self._tokens)

    def any_of(self, nested: int) -> Node:
        """Read what or joins."""
        parts = [self._all_of(nested)]
        while self._takes_word("or"):
            parts.append(self._all_of(nested))
        return any_of(*parts)

    def _all_of(self, nested: int) -> Node:
        parts = [self._part(nested)]
        while self._takes_word("and"):
            parts.append(self._part(nested))
        return all_of(*parts)

    def _part(self, nested: int) -> Node:
        if self._takes_sign("("):
            if nested == MOST_NESTED:
                raise _NotUnderstoodError
            found = self.any_of(nested + 1)
            self._require(")")
            return found
        return self._question()

    def _question(self) -> Node:
        if self.kind != "name" or self._content.lower() in _WORDS:
            raise _NotUnderstoodError
        field = self._fields.get(self._content)
        if field is None or not isinstance(field.field_type, PrimitiveType):
            raise _NotUnderstoodError
        self._next()
        if self.kind == "sign":
            return self._comparison(field)
        if self._takes_word("in"):
            return one_of(field.field_id, self._values(field))
        if self._takes_word("not"):
            if self._takes_word("between"):
                return any_of(*self._bounds(field, Op.LESS, Op.MORE))
            if not self._takes_word("in"):
                raise _NotUnderstoodError
            return _not_null(field, none_of(field.field_id, self._values(field)))
        if self._takes_word("between"):
            return all_of(*self._bounds(field, Op.AT_LEAST, Op.AT_MOST))
        return self._null(field)

    def _bounds(self, field: NestedField, first: Op, second: Op) -> tuple[Leaf, Leaf]:
        """Return what a column is asked by the two values of between."""
        least = self._value(field)
        if not self._takes_word("and"):
            raise _NotUnderstoodError
        most = self._value(field)
        return Leaf(field.field_id, first, (least,)), Leaf(field.field_id, second, (most,))

    def _comparison(self, field: NestedField) -> Node:
        sign = self._content
        self._next()
        if sign in _EQUAL:
            return one_of(field.field_id, (self._value(field),))
        if sign in _DIFFERENT:
            return _not_null(field, none_of(field.field_id, (self._value(field),)))
        if sign not in _COMPARED:
            raise _NotUnderstoodError
        return Leaf(field.field_id, _COMPARED[sign], (self._value(field),))

    def _null(self, field: NestedField) -> Node:
        if field.required or not self._takes_word("is"):
            raise _NotUnderstoodError
        op = Op.NOT_NULL if self._takes_word("not") else Op.IS_NULL
        if not self._takes_word("null"):
            raise _NotUnderstoodError
        return Leaf(field.field_id, op)

    def _values(self, field: NestedField) -> list[Any]:
        self._require("(")
        found = [self._value(field)]
        while self._takes_sign(","):
            found.append(self._value(field))
        self._require(")")
        return found

    def _value(self, field: NestedField) -> Any:
        key = self.kind, self._content, field.field_type
        self._next()
        if key not in self._values_read:
            self._values_read[key] = _fitting_value(*key)
        return self._values_read[key]

    def _takes_word(self, word: str) -> bool:
        return self._takes(self.kind == "name" and self._content.lower() == word)

    def _takes_sign(self, sign: str) -> bool:
        return self._takes(self.kind == "sign" and self._content == sign)

    def _takes(self, is_there: bool) -> bool:
        if is_there:
            self._next()
        return is_there

    def _require(self, sign: str) -> None:
        if not self._takes_sign(sign):
            raise _NotUnderstoodError

    def _next(self) -> None:
        if self.kind == "end":
            raise _NotUnderstoodError
        self.kind, self._content = next(self._tokens)


def _fitting_value(kind: str, content: str, wanted: IcebergType) -> Any:
    """Return a token's value as a column of some type has it."""
    literal: Literal[Any]
    try:
        if kind == "whole":
            literal = LongLiteral(int(content))
        elif kind == "decimal":
            literal = DecimalLiteral(Decimal(content))
        elif kind == "text":
            literal = StringLiteral(content)
        else:
            raise _NotUnderstoodError
        value = fitted(literal, wanted)
        if isinstance(value, Beyond):
            raise _NotUnderstoodError
        return value.to(wanted).value
    except (ValueError, TypeError, ArithmeticError):  # the parser's way says what is wrong
        raise _NotUnderstoodError from None


def _not_null(field: NestedField, leaf: Leaf) -> Node:
    """Return what a comparison says that holds of other values: that there is one, besides."""
    return leaf if field.required else all_of(Leaf(field.field_id, Op.NOT_NULL), leaf)
