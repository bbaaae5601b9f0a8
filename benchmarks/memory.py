"""Peak memory of a shard build above the memory-mapped vectors."""

import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data import enlarged, load
from benchmarks.results import Result, Row

SIZES = (340_000, 1_000_000)
MIB = 1 << 20


@dataclass(frozen=True)
class Spent:
    """What building a shard took, in a process of its own.

    Attributes:
        above: MiB at most, beyond what was held before, see `occupied`.
        kept: MiB of these that the graph and its codes take.
        seconds: of the build, by 2 threads.
        processor: seconds of both threads together.
    """

    above: float
    kept: float
    seconds: float
    processor: float


def measure(name: str, rounds: int) -> Result:
    """Build shards of several sizes, each in a process of its own."""
    result = Result(family="memory")
    vectors = load(name).vectors
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        for rows in SIZES:
            path = Path(temporary) / f"{rows}.npy"
            enlarged(vectors, rows, path)
            spent = build_apart(path, rows, Path(temporary))
            result.rows.append(
                Row(
                    key=f"memory-{rows}",
                    what=f"`vamana` peak memory above the mapped vectors, beyond graph and codes, "
                    f"{rows:,} × {vectors.shape[1]} (synthetic: mixtures of GloVe vectors)",
                    ours=f"{spent.above:.0f} MiB in all",
                    theirs=f"graph and codes {spent.kept:.0f} MiB",
                    measured=(spent.above - spent.kept) / 1024,
                    least=0.5,
                    aim=0.2,
                    below=True,
                    unit="GiB",
                    note=f"{rows:,} rows built in {spent.seconds:.0f} s by 2 threads; pages of "
                    "files do not count",
                )
            )
            path.unlink()
    return result


def build_apart(path: Path, rows: int, folder: Path) -> Spent:
    """Build a shard of the first rows of a file of vectors, in a process of its own.

    Args:
        path: `.npy` of `(n, d) float32`, which is mapped.
        rows: how many of them, at most n.
        folder: that it may write to.
    """
    command = [sys.executable, "-m", "benchmarks.memory", str(path), str(rows), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the build of {rows} rows failed: {done.stderr[-2000:]}")
    return Spent(*(float(text) for text in done.stdout.split()[-4:]))


class _Peak(threading.Thread):
    """Watches this process's memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._highest = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self._highest = max(self._highest, occupied())

    def end(self) -> float:
        """Stop watching, and return the highest value seen, MiB."""
        self._ended.set()
        self.join()
        return max(self._highest, occupied())


def occupied() -> float:
    """Return the memory that this process holds and that no file backs, MiB.

    Pages of files, of the vectors and of what a build maps from its scratch folder, do not count:
    the system takes them back when it needs memory.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024


def main(path: str, rows: str, folder: str) -> None:
    """Build a shard over a mapped file and print what `Spent` has."""
    from benchmarks import engines

    vectors = np.load(path, mmap_mode="r")[: int(rows)]
    # Kernels are loaded before the base is taken, those that only many rows need, too.
    warm = max(5000, 40 * vectors.shape[1])
    engines.build_ours("vamana", np.array(vectors[:warm]), Path(folder))
    base = occupied()
    peak = _Peak()
    peak.start()
    timed, built = engines.build_ours("vamana", vectors, Path(folder))
    highest = peak.end()
    arrays = (built.neighbours, built.degrees, built.codes)
    kept = sum(array.nbytes for array in arrays if array is not None) / MIB
    print(highest - base, kept, timed.wall, timed.processor)


if __name__ == "__main__":
    main(*sys.argv[1:])
