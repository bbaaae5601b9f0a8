"""A batch of 1 % inserted into a shard, against building the whole shard."""

import tempfile
from pathlib import Path
from statistics import median

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.engines import Clock
from benchmarks.results import Result, Row
from benchmarks.settle import settle
from puffin_ann.engines import engine

SHARE = 0.01
WIDTH = 64
ALGORITHMS = ("vamana", "ivf_pq", "hnsw")


def measure(name: str, rounds: int) -> Result:
    """Insert into shards of every engine that keeps structure."""
    data = load(name)
    result = Result(family="insert")
    for algorithm in ALGORITHMS:
        result.rows.append(_row(algorithm, data, rounds, result))
    return result


def _row(algorithm: str, data: DataSet, rounds: int, result: Result) -> Row:
    one = engine(algorithm)
    parameters = one.check({}, data.vectors.shape[1])
    first = round(len(data.vectors) * (1 - SHARE))
    times: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        _, small = engines.build_ours(algorithm, data.vectors[:first], folder)
        _, unpacked = engines.through_blob(algorithm, small, folder, searched=False)
        for number in range(rounds + 1):  # the first one compiles
            scratch = folder / f"insert-{number}"
            scratch.mkdir()
            settle(unpacked)
            with Clock() as clock:
                inserted = one.insert(
                    unpacked,
                    data.vectors[first:],
                    parameters=parameters,
                    norm_bound=0.0,
                    seed=0,
                    threads=engines.BUILD_THREADS,
                    scratch=scratch,
                )
            whole, built = engines.build_ours(algorithm, data.vectors, folder)
            times.append((clock.timed.wall, whole.wall))
        times = times[1:]
        recalls = []
        for made, place in ((inserted, "inserted"), (built, "built")):
            (folder / place).mkdir()
            shard, _ = engines.through_blob(algorithm, made, folder / place)
            engines.check_answers(shard, data, WIDTH)
            found, _ = shard.search(data.queries, NEIGHBOURS, width=WIDTH)
            recalls.append(data.recall(found))
    mine, theirs = (median(column) for column in zip(*times, strict=True))
    result.facts.append(
        f"{algorithm}: recall@10 at width {WIDTH} {recalls[0]:.4f} with the batch inserted, "
        f"{recalls[1]:.4f} built at once"
    )
    return Row(
        key=f"insert-{algorithm}",
        what=f"`{algorithm}`: insert of 1 % ÷ building the shard, {data.title}",
        ours=f"{mine:.2f} s",
        theirs=f"{theirs:.2f} s",
        measured=mine / theirs,
        least=0.05,
        aim=0.02,
        below=True,
    )
