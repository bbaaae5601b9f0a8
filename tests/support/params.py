"""Parameters of tests that take long."""

from collections.abc import Sequence
from typing import Any

import pytest


def long_but_first(values: Sequence[Any]) -> list[Any]:
    """Return parameters of which `make test` takes the first, and `make test-long` the others."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.long) for value in values[1:])]
