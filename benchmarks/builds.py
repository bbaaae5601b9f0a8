"""What a build spends on its recall gate, and how fast what searches read is made of its graphs."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import engines, lakehouse
from benchmarks.data import DataSet, load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

GATE = "measure recall"
"""The gate's step of a build."""
GATE_SHARE = (0.1, 0.05)
MADE_BYTES = (0.5, 1.0)
"""Packed nodes made a second, GB: at least, and hoped for."""


@dataclass(frozen=True)
class Built:
    """A build of an index through the lifecycle.

    Attributes:
        seconds: from planning it to its publication.
        steps: of these, by what was done.
    """

    seconds: float
    steps: dict[str, float]

    @property
    def gate_share(self) -> float:
        """Share of the seconds that the recall gate took."""
        return self.steps[GATE] / self.seconds


@dataclass(frozen=True)
class Made:
    """Packed nodes of a shard.

    Attributes:
        size: bytes.
        seconds: of making and trying them.
    """

    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """GB a second."""
        return self.size / self.seconds / 1e9


def measure(name: str, rounds: int) -> Result:
    """Build indexes of a table, and make the packed nodes of a shard that has all its rows."""
    data = load(name)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        lakehouse.create_table(data.vectors)
        # What is done first is compiled and imported for.
        built = [_build(number) for number in range(rounds + 1)][1:]
        made = _made(data, rounds, folder)
    return Result(family=f"builds-{name}", rows=[gate_row(data, built), packed_row(data, made)])


def gate_row(data: DataSet, built: Sequence[Built]) -> Row:
    """Return the line of the gate: that of the build whose share is the middle one."""
    one = sorted(built, key=lambda build: build.gate_share)[len(built) // 2]
    steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in one.steps.items())
    return Row(
        key=f"builds-gate-{data.name}",
        what=f"the recall gate ÷ the whole build of an index of 4 shards, {data.title}",
        ours=f"{one.steps[GATE]:.2f} s",
        theirs=f"{one.seconds:.2f} s",
        measured=one.gate_share,
        least=GATE_SHARE[0],
        aim=GATE_SHARE[1],
        below=True,
        note=f"in one process, by its threads; {steps}; the true neighbours that the gate compares "
        "with are found while rows are assigned, and their seconds are counted there",
    )


def packed_row(data: DataSet, made: Sequence[Made]) -> Row:
    """Return the line of packed nodes: of the median of the rounds."""
    seconds = median(one.seconds for one in made)
    middle = Made(made[0].size, seconds)
    return Row(
        key=f"builds-packed-{data.name}",
        what=f"bytes of packed nodes made a second, by {engines.BUILD_THREADS} threads, one shard "
        f"of {data.title}",
        ours=f"{middle.size / 1e6:.0f} MB in {seconds:.3f} s",
        theirs="–",
        measured=middle.rate,
        least=MADE_BYTES[0],
        aim=MADE_BYTES[1],
        unit="GB/s",
        note="all that is done between unpacking a shard and opening it: they are made, written to "
        "files, and tried by searches",
    )


def _build(number: int) -> Built:
    settle()
    declared = lakehouse.declared(name=f"bench{number}")
    seconds, steps, _ = lakehouse.timed_run(declared, f"build-{number}", "build")
    return Built(seconds, steps)


def _made(data: DataSet, rounds: int, folder: Path) -> list[Made]:
    """Make a shard's packed nodes so many times, each time in a folder of its own."""
    from puffin_ann.ann.vamana.packed.layout import PACKED
    from puffin_ann.blobs.shards import graph
    from puffin_ann.engines.vamana import VamanaEngine
    from puffin_ann.settings import limit_threads

    one = VamanaEngine()
    blob = folder / "vamana.blob"
    with blob.open("wb") as out:
        one.encode(engines.build_ours("vamana", data.vectors, folder)[1], out)
    made = []
    for _ in range(rounds + 1):  # the first one compiles
        with tempfile.TemporaryDirectory(dir=folder) as unpacked:
            with blob.open("rb") as source:
                graph.unpack(source, Path(unpacked))
            settle(Path(unpacked))
            with limit_threads(engines.BUILD_THREADS):
                began = time.perf_counter()
                one.prepare(Path(unpacked))
                seconds = time.perf_counter() - began
            packed = Path(unpacked, PACKED)
            if not packed.exists():
                raise RuntimeError(f"{data.title}: the shard was given no packed nodes")
            made.append(Made(packed.stat().st_size, seconds))
    return made[1:]
