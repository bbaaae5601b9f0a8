"""What `--json` prints, of every command."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from puffin_ann.cli.output import print_json


def refuse(word):
    raise ValueError(f"{word} is not of JSON")


def printed(capsys, value):
    print_json(value)
    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_numbers_that_json_has_no_words_for_are_null_wherever_they_are(capsys):
    odd = {"a": math.nan, "b": [math.inf, (-math.inf, 1.5)], "c": {"d": [{"e": math.nan}]}}
    assert printed(capsys, odd) == {"a": None, "b": [None, [None, 1.5]], "c": {"d": [{"e": None}]}}
    assert printed(capsys, math.inf) is None


def test_other_values_are_printed_as_they_are_or_as_text(capsys):
    values = {
        "numbers": [1, -0.0, 1e300, True, None],
        "bytes": b"ab",
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "cost": Decimal("1.50"),
        "uuid": UUID(int=1),
    }
    assert printed(capsys, values) == {
        "numbers": [1, -0.0, 1e300, True, None],
        "bytes": "YWI=",
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00+00:00",
        "cost": "1.50",
        "uuid": str(UUID(int=1)),
    }
    with pytest.raises(TypeError):
        print_json({"what": object()})
