"""What was measured, one JSON document a row, so that reporting can be repeated."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from llvmlite import binding
from pydantic import BaseModel, ConfigDict

from benchmarks.data import ROOT
from benchmarks.race import Curve

FOLDER = ROOT / ".local" / "bench"
KEPT = ROOT / "benchmarks" / "measured"
"""What docs/benchmarks.md says, so that families may be measured at different times."""
PACKAGES = ("numpy", "numba", "hnswlib", "faiss-cpu", "rabitqlib", "lancedb", "pyspark")


class Row(BaseModel):
    """A line of the table.

    Attributes:
        key: names the line, and orders nothing.
        what: the quantity, for people.
        ours: the absolute figure, as text with its unit.
        theirs: what it is compared with.
        measured: the figure held to the bounds: a ratio, seconds, megabytes.
        least: bound to reach.
        aim: bound hoped for.
        below: the figure has to be below its bounds, not above.
        note: at which recall, effort or size.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    what: str
    ours: str
    theirs: str
    measured: float | None
    least: float
    aim: float
    below: bool = False
    unit: str = "×"
    note: str = ""

    @property
    def reached(self) -> bool:
        """Tell whether the bound is reached."""
        if self.measured is None:
            return False
        return self.measured <= self.least if self.below else self.measured >= self.least


class Plot(BaseModel):
    """Curves of one picture: by name, (recall, queries per second) points."""

    model_config = ConfigDict(frozen=True)

    key: str
    title: str
    curves: Mapping[str, list[tuple[float, float]]]


class Result(BaseModel):
    """What one family measured.

    Attributes:
        family: its name.
        rows: lines of the table.
        plots: pictures.
        facts: parameters and sizes, for people.
        seconds: how long it took.
        failure: why it could not be measured; empty if it was.
        machine: what it was measured on.
        measured_on: day, as 2026-11-24.
    """

    family: str
    rows: list[Row] = []
    plots: list[Plot] = []
    facts: list[str] = []
    seconds: float = 0.0
    failure: str = ""
    machine: dict[str, str] = {}
    measured_on: str = ""


def plot(key: str, title: str, curves: Mapping[str, Curve]) -> Plot:
    """Return the picture of some curves."""
    points = {
        name: [(point.recall, point.rate) for point in curve] for name, curve in curves.items()
    }
    return Plot(key=key, title=title, curves=points)


def save(result: Result) -> Path:
    """Write a family's result in place of its earlier one."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{result.family}.json"
    path.write_text(result.model_dump_json(indent=1))
    return path


def saved(families: Iterable[str], folder: Path | None = None) -> list[Result]:
    """Return the results there are, in the order of `families`; by default what was measured here.

    Args:
        families: names.
        folder: that has them.
    """
    paths = [(folder or FOLDER) / f"{family}.json" for family in families]
    return [Result.model_validate(json.loads(path.read_text())) for path in paths if path.exists()]


def kept(families: Iterable[str]) -> list[Result]:
    """Return what was measured last, here or before; what is new is kept for the next time."""
    KEPT.mkdir(exist_ok=True)
    known = list(families)
    for result in saved(known):
        if not result.failure:
            (KEPT / f"{result.family}.json").write_text(result.model_dump_json(indent=1) + "\n")
    return saved(known, KEPT)


def machine() -> dict[str, str]:
    """Describe the machine and the packages."""
    found = {"processor": _processor(), "cores": str(len(os.sched_getaffinity(0)))}
    found["memory"] = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    found["Python"] = platform.python_version()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    names = {key.strip(): value.strip() for key, value in fields.items()}
    wide = "AVX-512 VBMI" if "avx512_vbmi" in names.get("flags", "") else "no AVX-512 VBMI"
    # What clouds call a model is several generations; LLVM tells them apart.
    kind = binding.get_host_cpu_name()
    return f"{names.get('model name', platform.processor())} ({kind}, {wide})"
