"""SymphonyQG of the degree that is best for a data set: degrees are raced once, losers dropped."""

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from benchmarks import engines
from benchmarks.data import DataSet
from benchmarks.engines import Timed
from benchmarks.race import RECALLS, Contender, race, rate_at
from benchmarks.results import machine

DEGREES = (32, 64, 96, 128)
"""Tried in this order, the next only while the one before is best somewhere: wide rows, whose nodes
take long to make, so need two builds."""

Rates = Mapping[tuple[bool, float], float]
"""(in a batch, recall@10) -> queries per second; 0 where the recall was not reached."""


@dataclass(frozen=True)
class Symphony:
    """An index of SymphonyQG.

    Attributes:
        degree: of its graph.
        timed: its build.
        index: to be searched.
    """

    degree: int
    timed: Timed
    index: Any

    @property
    def contender(self) -> Contender:
        """It, to be searched."""
        name = f"rabitqlib SymphonyQG, degree {self.degree}"
        return engines.symphony_contender(self.index, name)


class _Taken(BaseModel):
    degree: int
    wall: float
    processor: float


class _Choice(BaseModel):
    """What is kept of a race beside the indexes.

    Attributes:
        of: what it holds for: rows, library and processor.
        taken: the degrees, best first.
        told: of the race, for people.
    """

    of: str
    taken: list[_Taken]
    told: str


def fastest(data: DataSet, rounds: int) -> tuple[list[Symphony], str]:
    """Return the indexes that are fastest at some recall, and what is told of the others.

    The first is the fastest in a batch at the recall in the middle. They are kept in the folder
    that BENCH_KEPT names, where it does, and found there again.

    Args:
        data: what to build them of and to race them on.
        rounds: times that every point of the race is timed.
    """
    kept = os.environ.get("BENCH_KEPT")
    folder = Path(kept) / f"symphony-{data.name}" if kept else None
    found = _found(folder, data) if folder else None
    if found is not None:
        return found
    taken, told = _raced(data, rounds)
    if folder:
        _keep(folder, data, taken, told)
    return taken, told


def best(rates: Mapping[int, Rates]) -> list[int]:
    """Return the degrees that are fastest somewhere; first the one in a batch, in the middle."""
    middle = (True, RECALLS[len(RECALLS) // 2])
    places = sorted(next(iter(rates.values())), key=lambda place: place != middle)
    winners = [max(rates, key=lambda degree: rates[degree][place]) for place in places]
    return list(dict.fromkeys(winners))


def _raced(data: DataSet, rounds: int) -> tuple[list[Symphony], str]:
    """Build degree after degree, and race each with those that were best so far."""
    made: dict[int, Symphony] = {}
    rates: dict[int, Rates] = {}
    taken: list[int] = []
    for degree in DEGREES:
        timed, index = engines.build_symphony(data.vectors, degree)
        made[degree] = Symphony(degree, timed, index)
        rates |= _rates(made.values(), data, rounds)
        taken = best({known: rates[known] for known in made})
        made = {known: made[known] for known in taken}
        if degree not in taken:
            break
    return [made[degree] for degree in taken], _told(rates, taken)


def _rates(made: Iterable[Symphony], data: DataSet, rounds: int) -> dict[int, Rates]:
    """Race indexes, in turn, in batches and one query a call."""
    rates: dict[int, dict[tuple[bool, float], float]] = {one.degree: {} for one in made}
    contenders = {one.degree: one.contender for one in made}
    for batch in (True, False):
        curves = race(list(contenders.values()), data, batch=batch, rounds=rounds)
        for degree, contender in contenders.items():
            for recall in RECALLS:
                rates[degree][batch, recall] = rate_at(curves[contender.name], recall) or 0.0
    return dict(rates)


def _told(rates: Mapping[int, Rates], taken: Sequence[int]) -> str:
    tried = ", ".join(
        f"{degree}: " + " / ".join(f"{found[True, recall]:,.0f}" for recall in RECALLS)
        for degree, found in rates.items()
    )
    return (
        "SymphonyQG's degrees, raced alone, queries per second in a batch at "
        f"{'/'.join(f'{recall:.2f}'[1:] for recall in RECALLS)}: {tried}; best somewhere, batch "
        f"or one query a call, and compared with: {', '.join(map(str, taken))}"
    )


def _of(data: DataSet) -> str:
    """Tell what a choice holds for: other rows, or another library or machine, choose anew."""
    rows = zlib.crc32(np.ascontiguousarray(data.vectors).data)
    return f"{data.vectors.shape} {rows:08x}, {version('rabitqlib')}, {machine()['processor']}"


def _keep(folder: Path, data: DataSet, taken: Sequence[Symphony], told: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for one in taken:
        one.index.save(str(folder / f"{one.degree}.index"))
    choice = _Choice(
        of=_of(data),
        taken=[
            _Taken(degree=one.degree, wall=one.timed.wall, processor=one.timed.processor)
            for one in taken
        ],
        told=told,
    )
    (folder / "choice.json").write_text(choice.model_dump_json(indent=1))


def _found(folder: Path, data: DataSet) -> tuple[list[Symphony], str] | None:
    path = folder / "choice.json"
    if not path.exists():
        return None
    choice = _Choice.model_validate_json(path.read_text())
    if choice.of != _of(data):
        return None
    taken = [
        Symphony(
            one.degree,
            Timed(one.wall, one.processor),
            engines.load_symphony(folder / f"{one.degree}.index"),
        )
        for one in choice.taken
    ]
    return taken, f"{choice.told} (built and raced by an earlier run)"
