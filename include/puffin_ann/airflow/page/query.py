"""Search an index by a row's key: the one thing on the page that asks a catalog."""

import json
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from threading import BoundedSemaphore

from pydantic import BaseModel, ConfigDict

from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError
from puffin_ann.lifecycle.report.overview import sentence

DEADLINE_SECONDS = 15.0
AT_ONCE = 2
"""Searches at work, those that nobody waits for any more included."""

NEIGHBOURS = 10
LONGEST_KEY = 1000

_free = BoundedSemaphore(AT_ONCE)


class Neighbour(BaseModel):
    """One answer: its rank from 1, its key as text, and its distance."""

    model_config = ConfigDict(frozen=True)

    rank: int
    key: str
    distance: float


class Nearest(BaseModel):
    """The rows nearest to a row, and how they were found."""

    model_config = ConfigDict(frozen=True)

    key: str
    neighbours: tuple[Neighbour, ...]
    explanation: str


class QueryRefused(Exception):
    """A search that is not answered, in words for whoever asked."""


def nearest(table: str, index: str, column: str, value: str) -> Nearest:
    """Return the rows nearest to the one whose key has a value, within a deadline.

    Args:
        table: `catalog.namespace.table`.
        index: its name.
        column: the key.
        value: of the key, as text.

    Raises:
        QueryRefused: there was no answer in time, or none that can be told.
    """
    if len(value) > LONGEST_KEY:
        raise QueryRefused(f"a key has at most {LONGEST_KEY} characters here")
    if not _free.acquire(blocking=False):
        raise QueryRefused(f"{AT_ONCE} searches are at work already; try again")
    pool = ThreadPoolExecutor(1, thread_name_prefix="puffin-ann-query")
    try:
        asked = pool.submit(_search, table, index, column, value)
    except BaseException:
        _free.release()
        raise
    asked.add_done_callback(lambda _: _free.release())
    pool.shutdown(wait=False)
    try:
        return asked.result(DEADLINE_SECONDS)
    except Late:
        raise QueryRefused(f"there was no answer within {DEADLINE_SECONDS:.0f} s") from None
    except EnvironmentProblemError:
        raise QueryRefused("its catalog or its store does not answer") from None
    except PuffinAnnError as error:
        raise QueryRefused(sentence(str(error))) from None


def _search(table: str, index: str, column: str, value: str) -> Nearest:
    from puffin_ann.search.open_index import open_index
    from puffin_ann.search.row_by_key import vector_of_row

    opened = open_index(table, index, cache="none")
    row = vector_of_row(opened, column, value)
    found = opened.search(row.vector, NEIGHBOURS, columns=[column], allow_fewer=True)
    answers = zip(found["rank"], found[column], found["distance"], strict=True)
    report = json.loads((found.schema.metadata or {}).get(b"puffin_ann", b"{}"))
    told = [f"{name.replace('_', ' ')}: {value}" for name, value in report.items() if _plain(value)]
    return Nearest(
        key=column,
        neighbours=tuple(
            Neighbour(rank=rank.as_py(), key=str(key.as_py()), distance=distance.as_py())
            for rank, key, distance in answers
        ),
        explanation="; ".join(told),
    )


def _plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
