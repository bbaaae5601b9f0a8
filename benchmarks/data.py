"""The real vectors that everything is measured on, and their exact answers."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.failures import CannotMeasureError
from puffin_ann.ann.exact import brute_force

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "include" / "sample_data" / "glove-100d-20k.parquet"
FILES = {
    "glove-100d": "glove-100d-100k.parquet",
    "gloss-384d": "wordnet-gloss-384d-40k.parquet",
    "gloss-384d-117k": "wordnet-gloss-384d-117k.parquet",
    "package-384d": "debian-package-384d-60k.parquet",
    "picture-128d": "debian-picture-128d.parquet",
}
TITLES = {
    "glove-20k": "GloVe 6B, 20,000 words × 100",
    "glove-100d": "GloVe 6B, 100,000 words × 100",
    "gloss-384d": "WordNet 3.0 glosses, 40,000 sentences × 384",
    "gloss-384d-117k": "WordNet 3.0 glosses by MiniLM, 116,659 sentences × 384",
    "picture-128d": "SIFT of Debian 12's wallpapers, 139,146 descriptors × 128",
    "package-384d": "lines on Debian 12's packages by MiniLM, 60,012 sentences × 384",
    "gloss-768d": "WordNet 3.0 glosses by MiniLM, 116,659 pairs side by side × 768",
    "gloss-1536d": "WordNet 3.0 glosses by MiniLM, 116,659 fours side by side × 1,536",
    "million": "1,000,000 rows × 128, mixed of real ones",
}
BESIDE = {"gloss-768d": ("gloss-384d-117k", 2), "gloss-1536d": ("gloss-384d-117k", 4)}
"""Sets of which a row is a row of another and those after it, side by side: neighbours in WordNet
have to do with each other, as parts of a document have."""
MIXED_OF, MIXED_DIMENSION, MIXED_ROWS = "gloss-384d", 128, 1_000_000
QUERIES = 1000
NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class DataSet:
    """Vectors, queries held out of them, and the true neighbours of those.

    Attributes:
        name: key of `TITLES`.
        vectors: `(n, d) float32`.
        queries: `(q, d) float32`, rows of the source that are not among the vectors.
        truth: `(q, 10) int64`, nearest first, by Euclidean distance.
    """

    name: str
    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    truth: NDArray[np.int64]

    @property
    def title(self) -> str:
        """What it is, for people."""
        return TITLES[self.name]

    def recall(self, found: NDArray[np.integer]) -> float:
        """Return recall@10 of answers `(q, 10)`; -1 where there is none."""
        return recall(found, self.truth)


def recall(found: NDArray[np.integer], truth: NDArray[np.int64]) -> float:
    """Return the share of true neighbours that were found; doubled answers count once."""
    hits = (found[:, :, None] == truth[:, None, :]).any(axis=1).sum()
    return float(hits) / truth.size


def path_of(name: str) -> Path:
    """Return the file of a data set.

    Raises:
        CannotMeasureError: it is not there; says what to set.
    """
    if name == "glove-20k":
        return SAMPLE
    folder = os.environ.get("BENCH_DATA")
    if not folder:
        raise CannotMeasureError(
            f"BENCH_DATA is not set: name a folder with {FILES[name]} (columns id, embedding), "
            "or run `make bench-quick`, which needs no further data"
        )
    path = Path(folder) / FILES[name]
    if not path.is_file():
        raise CannotMeasureError(f"{path} does not exist; BENCH_DATA={folder} has to hold it")
    return path


def matrix(path: Path) -> NDArray[np.float32]:
    """Return the column `embedding` of a Parquet file, `(n, d) float32`."""
    column = pq.read_table(path, columns=["embedding"]).column("embedding").combine_chunks()
    values = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return np.ascontiguousarray(values.reshape(len(column), -1))


def write_rows(vectors: NDArray[np.float32], to: Path) -> None:
    """Write rows, (n, d) float32, to a Parquet file with the columns `id` and `embedding`."""
    offsets = np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1]
    lists = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()))
    pq.write_table(pa.table({"id": np.arange(len(vectors)), "embedding": lists}), to)


@cache
def load(name: str, folder: Path | None = None) -> DataSet:
    """Return a data set: 1,000 rows held out by seed 0 are the queries, the rest is searched.

    Args:
        name: of the set.
        folder: where one that is mixed of real rows is made, unless it is there.
    """
    if name == "million":
        if folder is None:
            raise CannotMeasureError(f"{name} is made of another set, in a folder")
        return _mixed(name, folder / "vectors.npy")
    of, sentences = BESIDE.get(name, (name, 1))
    real = matrix(path_of(of))
    rows = np.hstack([np.roll(real, -place, axis=0) for place in range(sentences)])
    held = np.zeros(len(rows), dtype=np.bool_)
    held[np.random.default_rng(0).choice(len(rows), QUERIES, replace=False)] = True
    return _with_truth(name, rows[~held], rows[held])


def _mixed(name: str, path: Path) -> DataSet:
    """Return a set that is mixed of real rows, its queries in the same way of the same ones."""
    if not path.exists():
        real = matrix(path_of(MIXED_OF))[:, :MIXED_DIMENSION]
        enlarged(np.ascontiguousarray(real), MIXED_ROWS + QUERIES, path)
    rows = np.load(path)
    return _with_truth(name, rows[:MIXED_ROWS], rows[MIXED_ROWS:])


def _with_truth(name: str, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> DataSet:
    truth, _ = brute_force.search(queries, vectors, NEIGHBOURS, "l2", threads=2)
    return DataSet(name, vectors, queries, truth)


def enlarged(vectors: NDArray[np.float32], rows: int, path: Path) -> NDArray[np.float32]:
    """Write `rows` vectors made of real ones to a mapped file: for sizes no real set here has.

    Row by row a mixture of two real rows, with noise of a tenth of the spread: synthetic, and said
    to be so wherever a figure comes from it.
    """
    rng = np.random.default_rng(0)
    out = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float32, shape=(rows, vectors.shape[1])
    )
    spread = vectors.std(axis=0)
    for start in range(0, rows, 65_536):
        size = min(65_536, rows - start)
        one, other = vectors[rng.integers(len(vectors), size=(2, size))]
        share = rng.uniform(0.6, 1.0, size=(size, 1)).astype(np.float32)
        noise = 0.1 * spread * rng.standard_normal((size, vectors.shape[1]), dtype=np.float32)
        out[start : start + size] = share * one + (1 - share) * other + noise
    out.flush()
    return out
