"""A shard in processes of their own: what the first batch takes, memory, and a second core."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines, symphony
from benchmarks.data import NEIGHBOURS, load
from benchmarks.race import effort_at, race
from benchmarks.results import Result, Row
from benchmarks.settle import settle

RECALL = 0.95
SECONDS = 2.0
"""How long each process asks, once it has answered its first batch."""
MIB = 1 << 20
OURS, HNSWLIB, SYMPHONY = "puffin-ann", "hnswlib", "SymphonyQG"

Ask = Callable[[NDArray[np.float32], int, int], Any]
"""(queries `(q, d)`, effort, threads) -> answers."""


@dataclass(frozen=True)
class Spent:
    """What a fresh process took.

    Attributes:
        first: seconds to open the shard and answer the first batch.
        faults: pages that it touched meanwhile for the first time.
        resident: bytes of memory that it held then and not before; pages of files count.
        rate: queries per second afterwards.
    """

    first: float
    faults: int
    resident: int
    rate: float


def measure(name: str, rounds: int) -> Result:
    """Build and store a shard of each engine, and search them in fresh processes."""
    data = load(name)
    result = Result(family="processes")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        np.save(folder / "queries.npy", data.queries)
        built = engines.build_ours("vamana", data.vectors, folder)[1]
        shard, unpacked = engines.through_blob("vamana", built, folder)
        shard.search(data.queries[:1], NEIGHBOURS, width=NEIGHBOURS)
        hnswlib = engines.build_hnswlib(data.vectors)[1]
        qualified, told = symphony.fastest(data, 1)
        graph = qualified[0]
        places = {
            OURS: unpacked,
            HNSWLIB: folder / "hnswlib.index",
            SYMPHONY: folder / "symphony.index",
        }
        hnswlib.save_index(str(places[HNSWLIB]))
        graph.index.save(str(places[SYMPHONY]))
        contenders = {
            OURS: engines.ours("vamana", shard),
            HNSWLIB: engines.hnswlib_contender(hnswlib, HNSWLIB),
            SYMPHONY: graph.contender,
        }
        curves = race(list(contenders.values()), data, rounds=1)
        efforts = {
            kind: effort_at(curves[contender.name], RECALL) or contender.most
            for kind, contender in contenders.items()
        }
        del shard, hnswlib, qualified, graph, contenders
        commands = {
            kind: [kind, str(place), str(folder), str(efforts[kind])]
            for kind, place in places.items()
        }
        alone: dict[str, list[Spent]] = {kind: [] for kind in commands}
        threads: dict[str, list[float]] = {kind: [] for kind in commands}
        both: dict[str, list[float]] = {kind: [] for kind in commands}
        for _ in range(max(3, rounds)):
            for kind, command in commands.items():
                settle(places[kind])
                alone[kind] += _run(command, threads=1)
                threads[kind].append(_run(command, threads=2)[0].rate)
                both[kind].append(sum(spent.rate for spent in _run(command, 1, processes=2)))
        sizes = {kind: engines.size_of(place) for kind, place in places.items()}
    result.rows = [
        _first(data.title, alone),
        _resident(data.title, alone, sizes),
        _faults(data.title, alone),
        _on_disk(data.title, sizes),
        _second_core("threads", "2 threads", data.title, alone, threads),
        _second_core("processes", "2 processes", data.title, alone, both),
    ]
    result.facts = [
        f"{kind}, recall@10 {RECALL} (effort {efforts[kind]}), a fresh process of one thread: "
        f"opened and 1,000 queries answered in {median(one.first for one in spent):.3f} s, "
        f"{median(one.faults for one in spent):,.0f} page faults, "
        f"{median(one.resident for one in spent) / MIB:.0f} MiB; its files "
        f"{sizes[kind] / MIB:.0f} MiB"
        for kind, spent in alone.items()
    ]
    result.facts.append(f"{data.title}: {told}, here by the first of these alone")
    return result


def _first(title: str, alone: Mapping[str, list[Spent]]) -> Row:
    seconds = {kind: median(one.first for one in spent) for kind, spent in alone.items()}
    best = min((kind for kind in seconds if kind != OURS), key=lambda kind: seconds[kind])
    return Row(
        key="processes-first",
        what=f"a fresh process opens a shard and answers 1,000 queries ÷ the same of {best}, "
        f"recall@10 {RECALL}, {title}",
        ours=f"{seconds[OURS]:.3f} s",
        theirs=f"{seconds[best]:.3f} s",
        measured=seconds[OURS] / seconds[best],
        least=1.0,
        aim=0.5,
        below=True,
        note="modules imported before; files in the system's cache",
    )


def _resident(title: str, alone: Mapping[str, list[Spent]], sizes: Mapping[str, int]) -> Row:
    mine = median(one.resident for one in alone[OURS])
    return Row(
        key="processes-memory",
        what=f"memory touched by then ÷ SymphonyQG's file, {title}",
        ours=f"{mine / MIB:.0f} MiB",
        theirs=f"{sizes[SYMPHONY] / MIB:.0f} MiB",
        measured=mine / sizes[SYMPHONY],
        least=1.0,
        aim=0.8,
        below=True,
        note="processes share what is mapped from files, as all of a shard of ours is",
    )


def _faults(title: str, alone: Mapping[str, list[Spent]]) -> Row:
    faults = {kind: median(one.faults for one in spent) for kind, spent in alone.items()}
    return Row(
        key="processes-faults",
        what=f"page faults by then ÷ hnswlib's, {title}",
        ours=f"{faults[OURS]:,.0f}",
        theirs=f"{faults[HNSWLIB]:,.0f}",
        measured=faults[OURS] / faults[HNSWLIB],
        least=1.0,
        aim=0.1,
        below=True,
        note=f"SymphonyQG reads its file, with {faults[SYMPHONY]:,.0f} faults",
    )


def _on_disk(title: str, sizes: Mapping[str, int]) -> Row:
    return Row(
        key="processes-disk",
        what=f"files of an opened shard on disk ÷ SymphonyQG's, {title}",
        ours=f"{sizes[OURS] / MIB:.0f} MiB",
        theirs=f"{sizes[SYMPHONY] / MIB:.0f} MiB",
        measured=sizes[OURS] / sizes[SYMPHONY],
        least=1.0,
        aim=0.8,
        below=True,
        note="raw vectors by Euclidean distance; with cosine they are there a second time, as unit "
        "vectors, see capacity.md",
    )


def _second_core(
    key: str,
    what: str,
    title: str,
    alone: Mapping[str, list[Spent]],
    more: Mapping[str, list[float]],
) -> Row:
    gains = {
        kind: median(more[kind]) / median(one.rate for one in spent)
        for kind, spent in alone.items()
    }
    peers = ", ".join(f"{kind} {gain:.2f}" for kind, gain in gains.items() if kind != OURS)
    return Row(
        key=f"processes-{key}",
        what=f"queries per second by {what} ÷ by one, batches, recall@10 {RECALL}, {title}",
        ours=f"{median(more[OURS]):,.0f}/s",
        theirs=peers,
        measured=gains[OURS],
        least=1.8,
        aim=1.95,
    )


def _run(arguments: list[str], threads: int, *, processes: int = 1) -> list[Spent]:
    """Run so many processes together, which begin to be timed when all have answered."""
    command = [sys.executable, "-m", "benchmarks.processes", *arguments, str(threads)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    firsts = [tuple(json.loads(_read(process))) for process in running]
    for process in running:
        told = cast(IO[str], process.stdin)
        told.write("\n")
        told.flush()
    rates = [float(_read(process)) for process in running]
    for process in running:
        process.communicate()
    return [
        Spent(first, faults, resident, rate)
        for (first, faults, resident), rate in zip(firsts, rates, strict=True)
    ]


def _read(process: "subprocess.Popen[str]") -> str:
    line = cast(IO[str], process.stdout).readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended without an answer: exit {process.wait()}")
    return line


def _open(kind: str, place: str, dimension: int) -> Ask:
    if kind == OURS:
        from puffin_ann.engines import engine

        shard = engine("vamana").open(Path(place))
        return lambda queries, effort, threads: shard.search(
            queries, NEIGHBOURS, width=effort, threads=threads
        )
    if kind == HNSWLIB:
        import hnswlib

        index = hnswlib.Index("l2", dimension)
        index.load_index(place)

        def ask(queries: NDArray[np.float32], effort: int, threads: int) -> Any:
            index.set_ef(effort)
            return index.knn_query(queries, k=NEIGHBOURS, num_threads=threads)

        return ask
    import rabitqlib

    graph = rabitqlib.SymqgIndex.load(place)
    return lambda queries, effort, threads: graph.search_batch(queries, NEIGHBOURS, effort, threads)


def _held() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) << 10


def main(kind: str, place: str, folder: str, effort: str, threads: str) -> None:
    """Answer a first batch, tell what it took; then ask on for some seconds, and tell the rate."""
    import hnswlib  # noqa: F401
    import rabitqlib  # noqa: F401

    import puffin_ann.engines  # noqa: F401

    queries = np.load(Path(folder, "queries.npy"))
    held, faults = _held(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    began = time.perf_counter()
    ask = _open(kind, place, queries.shape[1])
    ask(queries, int(effort), int(threads))
    first = time.perf_counter() - began
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    print(json.dumps([first, faults, _held() - held]), flush=True)
    sys.stdin.readline()
    began, answered = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        ask(queries, int(effort), int(threads))
        answered += len(queries)
    print(answered / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
