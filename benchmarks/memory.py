"""Peak memory of a shard build above the memory-mapped vectors."""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from benchmarks.data import enlarged, load
from benchmarks.results import Result, Row

SIZES = (340_000, 1_000_000)
MIB = 1 << 20


def measure(name: str, rounds: int) -> Result:
    """Build shards of several sizes, each in a process of its own."""
    result = Result(family="memory")
    vectors = load(name).vectors
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        for rows in SIZES:
            path = Path(temporary) / f"{rows}.npy"
            enlarged(vectors, rows, path)
            command = [sys.executable, "-m", "benchmarks.memory", str(path), temporary]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the build of {rows} rows failed: {done.stderr[-2000:]}")
            base, peak, kept, seconds = (float(text) for text in done.stdout.split()[-4:])
            above = peak - base
            result.rows.append(
                Row(
                    key=f"memory-{rows}",
                    what=f"`vamana` peak memory above the mapped vectors, beyond graph and codes, "
                    f"{rows:,} × {vectors.shape[1]} (synthetic: mixtures of GloVe vectors)",
                    ours=f"{above:.0f} MiB in all",
                    theirs=f"graph and codes {kept:.0f} MiB",
                    measured=(above - kept) / 1024,
                    least=0.5,
                    aim=0.2,
                    below=True,
                    unit="GiB",
                    note=f"{rows:,} rows built in {seconds:.0f} s by 2 threads; pages of files do "
                    "not count",
                )
            )
            path.unlink()
    return result


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


def main(path: str, folder: str) -> None:
    """Build a shard over a mapped file and print base, peak, graph and codes (MiB), seconds."""
    from benchmarks import engines

    rng = np.random.default_rng(0)
    warm = rng.standard_normal((5000, 100), dtype=np.float32)
    engines.build_ours("vamana", warm, Path(folder))  # kernels are loaded before the base is taken
    vectors = np.load(path, mmap_mode="r")
    base = occupied()
    peak = _Peak()
    peak.start()
    timed, built = engines.build_ours("vamana", vectors, Path(folder))
    highest = peak.end()
    arrays = (built.neighbours, built.degrees, built.codes)
    kept = sum(array.nbytes for array in arrays if array is not None) / MIB
    print(base, highest, kept, timed.wall)


if __name__ == "__main__":
    main(*sys.argv[1:])
