"""`ivf_pq`, loaded from its blob, against faiss's IVF with fast scan, loaded from its file."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.race import Contender, Curve, race, rate_at, rate_text
from benchmarks.results import Result, Row, plot

BOUNDS = {"batch": (1.3, 1.6), "one query a call": (1.3, 1.6)}
RECALLS = (0.90, 0.95, 0.99)
FACTORIES = {
    "glove-20k": ("IVF256,PQ50x4fs,RFlat",),
    "glove-100d": ("IVF1024,PQ50x4fs,RFlat", "IVF400,PQ50x4fs,RFlat", "IVF400,PQ100x4fs,RFlat"),
    "gloss-384d": ("IVF640,PQ96x4fs,RFlat", "IVF400,PQ192x4fs,RFlat", "IVF240,PQ192x4fs,RFlat"),
}
"""Indexes of faiss; held against ours is, at each recall, whichever is fastest."""
REFINED = (5, 10, 20)
"""faiss compares this many times k candidates exactly: all are tried."""


def measure(name: str, rounds: int) -> Result:
    """Build both, store both, load both, search both."""
    data = load(name)
    result = Result(family=f"lists-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        mine, built = engines.build_ours("ivf_pq", data.vectors, folder)
        shard, _ = engines.through_blob("ivf_pq", built, folder)
        engines.check_answers(shard, data)
        peers, seconds = [], []
        for factory in FACTORIES[name]:
            timed, made = _faiss(data, factory, folder)
            peers += made
            seconds.append(f"`{factory}` {timed.wall:.1f} s")
        contenders = [engines.ours("ivf_pq", shard), *peers]
        for how, bounds in BOUNDS.items():
            curves = race(contenders, data, batch=how == "batch", rounds=rounds)
            for recall in RECALLS:
                own = rate_at(curves[contenders[0].name], recall)
                best, peer = max(
                    ((rate_at(curves[peer.name], recall) or 0.0, peer) for peer in peers),
                    key=lambda pair: pair[0],
                )
                ratio = None if own is None or not best else own / best
                result.rows.append(
                    Row(
                        key=f"ivf-{name}-{how.split()[0]}-{recall:.2f}",
                        what=f"`ivf_pq` ÷ faiss's fastest IVF-PQ fast scan with refinement, "
                        f"{data.title}, {how}, recall@10 {recall:.2f}",
                        ours=rate_text(own),
                        theirs=rate_text(best or None),
                        measured=ratio,
                        least=bounds[0],
                        aim=bounds[1],
                        note=f"faiss: {peer.name}",
                    )
                )
            result.plots.append(
                plot(f"lists-{name}-{how.split()[0]}", f"{data.title}, {how}", _shown(curves))
            )
    result.facts.append(
        f"{data.title}: build ivf_pq {mine.wall:.1f} s; faiss: {', '.join(seconds)} (2 threads)"
    )
    return result


def _shown(curves: dict[str, Curve]) -> dict[str, Curve]:
    """Leave one curve of each index of faiss: pictures with ten of them cannot be read."""
    return {name: curve for name, curve in curves.items() if not name.endswith((" 5", " 20"))}


def _faiss(data: DataSet, factory: str, folder: Path) -> tuple[engines.Timed, list[Contender]]:
    import faiss

    faiss.omp_set_num_threads(engines.BUILD_THREADS)
    made = faiss.index_factory(data.vectors.shape[1], factory)
    with engines.Clock() as clock:
        made.train(data.vectors)
        made.add(data.vectors)
    path = str(folder / "faiss.index")
    faiss.write_index(made, path)
    faiss.omp_set_num_threads(1)
    read = faiss.read_index(path)
    return clock.timed, [_contender(read, factory, refined) for refined in REFINED]


def _contender(index: Any, factory: str, refined: int) -> Contender:
    import faiss

    inverted = faiss.downcast_index(index.base_index)

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        inverted.nprobe = effort
        index.k_factor = refined
        found: NDArray[np.integer] = index.search(queries, NEIGHBOURS)[1]
        return found

    return Contender(f"faiss {factory}, k_factor {refined}", search, least=1, most=inverted.nlist)
