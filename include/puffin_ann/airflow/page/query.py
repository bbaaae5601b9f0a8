"""Search an index by a row's key: the one thing on the page that asks a catalog."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from threading import BoundedSemaphore
from typing import Any

from pydantic import BaseModel, ConfigDict

from puffin_ann.airflow.page.figures import count, share
from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError
from puffin_ann.lifecycle.report.overview import sentence

DEADLINE_SECONDS = 15.0
AT_ONCE = 2
"""Searches at work, those that nobody waits for any more included."""

NEIGHBOURS = 10
LONGEST = 1000
"""Characters of a key, and of a condition."""

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


def nearest(table: str, index: str, column: str, value: str, where: str = "") -> Nearest:
    """Return the other rows nearest to the one whose key has a value, within a deadline.

    Args:
        table: `catalog.namespace.table`.
        index: its name.
        column: the key.
        value: of the key, as text.
        where: a condition that answers satisfy; empty for none.

    Raises:
        QueryRefused: there was no answer in time, or none that can be told.
    """
    if max(len(value), len(where)) > LONGEST:
        raise QueryRefused(f"a key and a condition have at most {LONGEST} characters here")
    if not _free.acquire(blocking=False):
        raise QueryRefused(f"{AT_ONCE} searches are at work already; try again")
    pool = ThreadPoolExecutor(1, thread_name_prefix="puffin-ann-query")
    try:
        asked = pool.submit(_search, table, index, column, value, where)
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


def _search(table: str, index: str, column: str, value: str, where: str) -> Nearest:
    from puffin_ann.search.open_index import open_index
    from puffin_ann.search.row_by_key import vector_of_row, without_themselves

    opened = open_index(table, index, cache="none")
    row = vector_of_row(opened, column, value)
    answers = opened.search(
        row.vector, NEIGHBOURS + 1, columns=[column], where=where or None, allow_fewer=True
    )
    found, _ = without_themselves([row], answers, NEIGHBOURS)
    answers = zip(found["rank"], found[column], found["distance"], strict=True)
    report = json.loads((found.schema.metadata or {}).get(b"puffin_ann", b"{}"))
    return Nearest(
        key=column,
        neighbours=tuple(
            Neighbour(rank=rank.as_py(), key=str(key.as_py()), distance=distance.as_py())
            for rank, key, distance in answers
        ),
        explanation=explain(report),
    )


def explain(report: Mapping[str, Any]) -> str:
    """Return in words what an answer was made from, as its `SearchReport` has it."""
    told = [
        f"Of snapshot {report['snapshot']}. The index covers {share(report['coverage'])} of its "
        f"rows: {_many(report['shards_probed'], 'shard')} searched, and "
        f"{_many(report['rows_scanned'], 'row')} outside the index compared one by one.",
    ]
    if report["where"] is not None:
        told.append(f"The condition leaves {_many(report['rows_allowed'], 'row')}.")
    told += [f"Damaged: {sentence(damage)}." for damage in report["damaged"]]
    return " ".join(told)


def _many(number: int, thing: str) -> str:
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"
