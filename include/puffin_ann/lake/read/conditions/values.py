"""Values that a condition compares, as the column has them that they are compared with.

A value is taken as exactly as the column's type can have it, or refused with the form that is
accepted. Of numbers beyond all of the type, only the side is left: PyIceberg makes of a comparison
with such a number one that all rows satisfy or none, NaN and null among them.
"""

import math
import re
from datetime import date, datetime, time
from decimal import Context, Decimal
from enum import Enum
from typing import Any

import numpy as np
from pyiceberg.expressions.literals import (
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

NUMBERS = (IntegerType, LongType, DecimalType, FloatType, DoubleType)
FLOATS = (FloatType, DoubleType)

_MOMENTS = (DateType, TimeType, TimestampType, TimestamptzType)
_MICROSECONDS_OF_A_DAY = 86_400_000_000
_DIGITS = Context(prec=39)
"""One digit more than a decimal column has at most, for what is rounded up."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.I)
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"

_TEXTS: dict[type[IcebergType], tuple[re.Pattern[str], str]] = {
    DateType: (re.compile(_DATE), "a date is written as '2024-01-31'"),
    TimeType: (re.compile(_TIME), "a time is written as '14:30:00'"),
    TimestampType: (
        re.compile(rf"{_DATE}([T ]{_TIME})?"),
        "it is written as '2024-01-31T14:30:00', '2024-01-31 14:30:00' or '2024-01-31', without a "
        "time zone",
    ),
    TimestamptzType: (
        re.compile(rf"{_DATE}[T ]{_TIME}{_ZONE}"),
        "it is written as '2024-01-31T14:30:00Z' or '2024-01-31 14:30:00+02:00', with its time "
        "zone",
    ),
}
"""By type: what a text has to look like, and how a person is told so."""

_FORMS: dict[type[IcebergType], str] = {
    BooleanType: "it takes true or false",
    StringType: "text stands in single quotes",
    UUIDType: "it is written as 'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
    FixedType: "it takes bytes, as many as the column has, as an expression of PyIceberg's has "
    "them: EqualTo('name', b'...')",
    BinaryType: "it takes bytes, as an expression of PyIceberg's has them: EqualTo('name', b'...')",
}


class Beyond(Enum):
    """On which side of all finite values of a column's type a value is."""

    ABOVE = "above"
    BELOW = "below"


class UnfitValueError(ValueError):
    """A value that a column cannot have; the message says why, or what it could."""


def fitted(literal: Literal[Any], kind: IcebergType) -> Literal[Any] | Beyond:
    """Return a value as a column has it, or where it is if the column's type does not reach it.

    Text counts as what it says: as a number, a date, a time.

    Raises:
        UnfitValueError: the column cannot have the value.
    """
    if isinstance(kind, NUMBERS):
        return _number(literal, kind)
    if isinstance(kind, _MOMENTS):
        return _moment(literal, kind)
    try:
        return literal.to(kind)
    except (ValueError, TypeError, ArithmeticError):
        raise UnfitValueError(
            _FORMS.get(type(kind), "a condition compares columns of single values")
        ) from None


def _number(literal: Literal[Any], kind: IcebergType) -> Literal[Any] | Beyond:
    value = _decimal(literal)
    if isinstance(kind, FLOATS):
        return _floating(value, kind)
    if isinstance(kind, DecimalType):
        reach = Decimal(1).scaleb(kind.precision - kind.scale)
        if value.copy_abs() >= reach:
            return _side(value)
        scaled = value.quantize(Decimal(1).scaleb(-kind.scale), context=_DIGITS)
        if scaled != value:
            raise UnfitValueError(f"it has more than {kind.scale} digits behind the point")
        return DecimalLiteral(scaled)
    limits = IntegerType if isinstance(kind, IntegerType) else LongType
    if not limits.min <= value <= limits.max:
        return _side(value)
    if value != value.to_integral_value():
        raise UnfitValueError("it is no whole number")
    return LongLiteral(int(value))


def _decimal(literal: Literal[Any]) -> Decimal:
    """Return a number, exactly as it is written."""
    value = literal.value
    is_number = isinstance(literal, LongLiteral | FloatLiteral | DoubleLiteral | DecimalLiteral)
    if not is_number and not (
        isinstance(literal, StringLiteral) and _NUMBER.fullmatch(value.strip())
    ):
        raise UnfitValueError("it is no number")
    try:
        return Decimal(value if isinstance(value, Decimal | int) else str(value).strip())
    except ArithmeticError:  # its power of ten is beyond any
        raise UnfitValueError("it is no number") from None


def _floating(value: Decimal, kind: IcebergType) -> Literal[Any] | Beyond:
    number = float(value)
    if isinstance(kind, FloatType):
        # Bounds of files are compared with the value, too: as float32, which rows are compared in.
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    if math.isinf(number) and value.is_finite():
        return _side(value)
    return FloatLiteral(number) if isinstance(kind, FloatType) else DoubleLiteral(number)


def _side(value: Decimal | int) -> Beyond:
    return Beyond.ABOVE if value > 0 else Beyond.BELOW


def _moment(literal: Literal[Any], kind: IcebergType) -> Literal[Any] | Beyond:
    _, form = _TEXTS[type(kind)]
    if isinstance(literal, StringLiteral):
        return _read(literal.value, kind)
    if not isinstance(literal, DateLiteral | TimeLiteral | TimestampLiteral):
        # PyIceberg takes numbers, too, for days or microseconds since 1970: `at > 2024` would be
        # true of nearly all that is later.
        raise UnfitValueError(form)
    if isinstance(literal, TimestampLiteral) and isinstance(kind, DateType):
        days, rest = divmod(literal.value, _MICROSECONDS_OF_A_DAY)
        if rest:
            raise UnfitValueError("it has a time of day; a date has none")
        return DateLiteral(days)
    if isinstance(literal, DateLiteral) and isinstance(kind, TimestampType):
        literal = TimestampLiteral(literal.value * _MICROSECONDS_OF_A_DAY)
    try:
        found = literal.to(kind)
    except (ValueError, TypeError, ArithmeticError):
        raise UnfitValueError(form) from None
    # A literal of PyIceberg's, made by hand, can be beyond any that it makes of a moment.
    limits = IntegerType if isinstance(kind, DateType) else LongType
    return found if limits.min <= found.value <= limits.max else _side(found.value)


def _read(text: str, kind: IcebergType) -> Literal[Any]:
    """Return what a text says of a moment.

    A time zone is never assumed, nor left out of account.
    """
    pattern, form = _TEXTS[type(kind)]
    if not pattern.fullmatch(text):
        raise UnfitValueError(form)
    try:
        if isinstance(kind, DateType):
            return DateLiteral(date_to_days(date.fromisoformat(text)))
        if isinstance(kind, TimeType):
            return TimeLiteral(time_to_micros(time.fromisoformat(text)))
        return TimestampLiteral(datetime_to_micros(datetime.fromisoformat(text)))
    except ValueError:
        raise UnfitValueError(f"there is no such moment; {form}") from None
