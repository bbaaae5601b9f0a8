"""`ivf_pq`, loaded from its blob, against faiss's IVF with fast scan, loaded from its file."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.race import Contender, race, rate_at
from benchmarks.results import Result, Row, plot

BOUNDS = {"batch": (1.0, 1.6), "one query a call": (1.2, 2.0)}
RECALLS = (0.90, 0.95, 0.98)
REFINED = 20
"""faiss refines this many times k candidates; of 5, 10, 20 and 40 the best at .95 on both sets."""


def factory(data: DataSet) -> str:
    """Return faiss's index: a code for every two dimensions, lists by the usual rule."""
    lists = 1024 if len(data.vectors) > 60_000 else 512 if len(data.vectors) > 30_000 else 256
    return f"IVF{lists},PQ{data.vectors.shape[1] // 2}x4fs,RFlat"


def measure(name: str, rounds: int) -> Result:
    """Build both, store both, load both, search both."""
    data = load(name)
    result = Result(family=f"lists-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        mine, built = engines.build_ours("ivf_pq", data.vectors, folder)
        shard, _ = engines.through_blob("ivf_pq", built, folder)
        engines.check_answers(shard, data)
        theirs, peer = _faiss(data, folder)
        contenders = [engines.ours("ivf_pq", shard), peer]
        for how, bounds in BOUNDS.items():
            curves = race(contenders, data, batch=how == "batch", rounds=rounds)
            for recall in RECALLS:
                pair = [rate_at(curves[one.name], recall) for one in contenders]
                ratio = None if pair[0] is None or pair[1] is None else pair[0] / pair[1]
                texts = ["not reached" if one is None else f"{one:,.0f}/s" for one in pair]
                result.rows.append(
                    Row(
                        key=f"ivf-{name}-{how.split()[0]}-{recall:.2f}",
                        what=f"`ivf_pq` ÷ faiss `{factory(data)}`, {data.title}, {how}, "
                        f"recall@10 {recall:.2f}",
                        ours=texts[0],
                        theirs=texts[1],
                        measured=ratio,
                        least=bounds[0],
                        aim=bounds[1],
                    )
                )
            result.plots.append(
                plot(f"lists-{name}-{how.split()[0]}", f"{data.title}, {how}", curves)
            )
    result.facts.append(
        f"{data.title}: build ivf_pq {mine.wall:.1f} s, faiss {theirs.wall:.1f} s (2 threads)"
    )
    return result


def _faiss(data: DataSet, folder: Path) -> tuple[engines.Timed, Contender]:
    import faiss

    faiss.omp_set_num_threads(engines.BUILD_THREADS)
    made = faiss.index_factory(data.vectors.shape[1], factory(data))
    with engines.Clock() as clock:
        made.train(data.vectors)
        made.add(data.vectors)
    path = str(folder / "faiss.index")
    faiss.write_index(made, path)
    faiss.omp_set_num_threads(1)
    return clock.timed, _contender(faiss.read_index(path))


def _contender(index: Any) -> Contender:
    import faiss

    inverted = faiss.downcast_index(index.base_index)
    index.k_factor = REFINED

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        inverted.nprobe = effort
        found: NDArray[np.integer] = index.search(queries, NEIGHBOURS)[1]
        return found

    return Contender("faiss IVF-PQ fast scan, refined", search, least=1, most=inverted.nlist)
