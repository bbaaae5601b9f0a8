"""Retry work on a table that other writers changed meanwhile."""

import logging
from collections.abc import Callable
from typing import TypeVar

from puffin_ann.errors import ConflictError

log = logging.getLogger("puffin_ann")

ATTEMPTS = 4

R = TypeVar("R")


def retry_on_conflict(what: str, work: Callable[[], R]) -> R:
    """Return what `work` returns, which loads the table first; repeated where the table moved on.

    Raises:
        ConflictError: the table was changed by others during every attempt.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except ConflictError as error:
            log.warning("%s: %s; retrying (attempt %d)", what, error, attempt)
    return work()
