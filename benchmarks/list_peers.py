"""What `ivf_pq` is compared with: IVF indexes of faiss, and rabitqlib's IVF."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import NEIGHBOURS, DataSet
from benchmarks.engines import BUILD_THREADS, Clock, Timed
from benchmarks.race import Contender

FACTORIES = {
    "glove-20k": ("IVF256,PQ50x4fs,RFlat",),
    "glove-100d": (
        "IVF1024,PQ50x4fs,RFlat",
        "IVF400,PQ50x4fs,RFlat",
        "IVF400,PQ100x4fs,RFlat",
        "IVF400,RaBitQfs,RFlat",
    ),
    "gloss-384d": (
        "IVF640,PQ96x4fs,RFlat",
        "IVF400,PQ192x4fs,RFlat",
        "IVF240,PQ192x4fs,RFlat",
        "IVF400,RaBitQfs,RFlat",
    ),
    "gloss-384d-117k": (
        "IVF1024,PQ96x4fs,RFlat",
        "IVF640,PQ192x4fs,RFlat",
        "IVF640,RaBitQfs,RFlat",
    ),
    "picture-128d": (
        "IVF1024,PQ64x4fs,RFlat",
        "IVF400,PQ64x4fs,RFlat",
        "IVF400,PQ128x4fs,RFlat",
        "IVF400,RaBitQfs,RFlat",
    ),
    "package-384d": (
        "IVF1024,PQ96x4fs,RFlat",
        "IVF640,PQ96x4fs,RFlat",
        "IVF400,PQ192x4fs,RFlat",
        "IVF240,PQ192x4fs,RFlat",
        "IVF400,RaBitQfs,RFlat",
        "OPQ96,IVF640,PQ96x4fs,RFlat",
    ),
    "gloss-768d": (
        "IVF1024,PQ192x4fs,RFlat",
        "IVF640,PQ384x4fs,RFlat",
        "IVF640,RaBitQfs,RFlat",
    ),
    "gloss-1536d": (
        "IVF1024,PQ384x4fs,RFlat",
        "IVF640,PQ384x4fs,RFlat",
        "IVF640,RaBitQ,RFlat",
    ),
}
"""Indexes of faiss; held against ours is, at each recall, whichever is fastest. With OPQ
before them, trained in 85 s, they were slower at 100 and at 384 dimensions. At 1,536 searches of
`RaBitQfs` end the process (1.15.1: a segmentation fault)."""
REFINED = (5, 10, 20)
"""faiss compares this many times k candidates exactly: all are tried."""
CLUSTERS = {"glove-20k": (256,), "gloss-384d": (240, 640), "package-384d": (240, 640)}
"""Of rabitqlib's IVF, where others than `MANY_CLUSTERS` are better."""
MANY_CLUSTERS = (400, 1024)
BITS = (7, 32)
"""A dimension, of rabitqlib's IVF: 32 compares the vectors themselves at the end."""


def build_faiss(data: DataSet, factory: str, folder: Path) -> tuple[Timed, list[Contender]]:
    """Build an index of faiss, load it from its file, and return it with each refinement."""
    import faiss

    faiss.omp_set_num_threads(BUILD_THREADS)
    made = faiss.index_factory(data.vectors.shape[1], factory)
    with Clock() as clock:
        made.train(data.vectors)
        made.add(data.vectors)
    path = str(folder / "faiss.index")
    faiss.write_index(made, path)
    faiss.omp_set_num_threads(1)
    read = faiss.read_index(path)
    return clock.timed, [_refined(read, factory, times) for times in REFINED]


def _refined(index: Any, factory: str, times: int) -> Contender:
    import faiss

    inverted = faiss.extract_index_ivf(index.base_index)

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        inverted.nprobe = effort
        index.k_factor = times
        found: NDArray[np.integer] = index.search(queries, NEIGHBOURS)[1]
        return found

    return Contender(f"faiss {factory}, k_factor {times}", search, least=1, most=inverted.nlist)


def build_rabitq(data: DataSet, clusters: int) -> list[Contender]:
    """Build rabitqlib's IVF over clusters that faiss finds, at each number of bits."""
    import faiss
    import rabitqlib

    faiss.omp_set_num_threads(BUILD_THREADS)
    means = faiss.Kmeans(data.vectors.shape[1], clusters, niter=20, seed=0)
    means.train(data.vectors)
    nearest = means.index.search(data.vectors, 1)[1][:, 0].astype(np.uint32)
    contenders = []
    for bits in BITS:
        index = rabitqlib.IvfIndex(data.vectors.shape[1], len(data.vectors), clusters, bits)
        index.build(data.vectors, means.centroids, nearest, BUILD_THREADS)
        contenders.append(_rabitq(index, clusters, bits))
    faiss.omp_set_num_threads(1)
    return contenders


def _rabitq(index: Any, clusters: int, bits: int) -> Contender:
    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        found = np.asarray(index.search(queries, NEIGHBOURS, effort, num_threads=1)[0])
        return found.reshape(len(queries), NEIGHBOURS).astype(np.int64)

    return Contender(f"rabitqlib IVF{clusters}, {bits} bits", search, least=1, most=clusters)
