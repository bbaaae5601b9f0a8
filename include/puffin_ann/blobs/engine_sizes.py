"""Predict how large an index of any algorithm will be: `sizes` knows those of graph blobs.

Of layers, degrees depend on the data, as in `sizes`. Lists follow the formulas of `docs/format.md`
to the byte, and so do centroids of data files, of which there are no shards.
"""

import math
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs import hnsw, ivf, metrics, sizes
from puffin_ann.blobs.container import ContainerReader, length_of
from puffin_ann.blobs.sizes import IndexShape, IndexSize
from puffin_ann.declaration import CENTROID

LAYER_DEGREE = 3.5
"""Mean neighbours in layer 0 as a multiple of the root of M. Measured on GloVe words, 6,000 and
20,000 a shard: 14.0 to 14.7 at M 16, 10.0 at M 8."""

UPPER_DEGREE = 2.3
"""Likewise in the layers above, of which there is one list in M: 8.9 to 9.9 and 5.8."""

_PROPERTIES = 50
_CENTROID_LANES = 64
_LANES = 16  # rows that a graph is searched by are padded to so many numbers


@dataclass(frozen=True)
class Engine:
    """What decides the size of a shard besides its rows.

    Attributes:
        algorithm: As declared; `vamana` and `exact` shards are graph blobs.
        links: M of an HNSW graph.
        lists: Inverted lists of a shard; 0: none, every row is compared.
        centroids: Centroids of a data file.

    """

    algorithm: str = "vamana"
    links: int = 16
    lists: int = 0
    centroids: int = 1


def predict(shape: IndexShape, engine: Engine) -> IndexSize:
    """Return the sizes of an index of a shape; of `centroid`, the one blob stands for shards."""
    if engine.algorithm == CENTROID:
        return _of_centroids(shape, engine)
    one = math.ceil(shape.rows / shape.shards)
    if engine.algorithm == "hnsw":
        return sizes.predict(shape, layers_size(shape, engine, one), _layers(shape, engine, one))
    if engine.algorithm == "ivf_pq":
        return sizes.predict(shape, lists_size(shape, engine, one), _lists(shape, engine, one))
    return sizes.predict(shape)


def told_by(kind: str, source: BinaryIO) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fields of an `IndexShape` and of an `Engine` that a shard's HNSW or lists blob tells.

    Raises:
        FormatError: It is no such blob.

    """
    if kind == ivf.TYPE:
        head = ContainerReader(source, ivf.KIND).record("head", ivf.HEAD)
        codes = {"pq_subspaces": int(head["pq_subspaces"])} if int(head["lists"]) else {}
        return {**_width_of(head, "lists blob"), **codes}, {"algorithm": "ivf_pq"}
    reader = ContainerReader(source, hnsw.KIND)
    head = reader.record("head", hnsw.HEAD)
    count, links = int(head["rows"]), int(head["links"])
    told = _width_of(head, "hnsw blob")
    if count:
        adjacency = reader.section_length("adja")
        told["mean_degree"] = sizes.mean_degree_of(adjacency, count, 2 * links)
    return told, {"algorithm": "hnsw", "links": links}


def _width_of(head: np.void | NDArray[Any], where: str) -> dict[str, Any]:
    metric = metrics.name(int(head["metric"]), where)
    return {"dimension": int(head["dimension"]), "metric": metric}


def fewest_shards(shape: IndexShape, engine: Engine) -> int:
    """Return the fewest shards whose blobs Java can read; see `sizes.fewest_shards`."""
    if engine.algorithm == CENTROID:
        return 1
    measure = {
        "hnsw": lambda shape, count: layers_size(shape, engine, count),
        "ivf_pq": lambda shape, count: lists_size(shape, engine, count),
    }
    return sizes.fewest_shards(shape, measure.get(engine.algorithm, sizes.graph_size))


def layers_size(shape: IndexShape, engine: Engine, count: int) -> int:
    """Return the bytes of the HNSW blob of a shard of `count` rows."""
    upper = _upper_lists(engine, count)
    return length_of(
        [
            hnsw.HEAD.itemsize,
            _PROPERTIES,
            count,
            *_adjacency(count, count, 2 * engine.links, shape.mean_degree or _degree(engine)),
            *_adjacency(upper, count, engine.links, UPPER_DEGREE * math.sqrt(engine.links)),
            4 * count * shape.dimension,
        ]
    )


def lists_size(shape: IndexShape, engine: Engine, count: int) -> int:
    """Return the bytes of the lists blob of a shard of `count` rows."""
    return length_of([ivf.HEAD.itemsize, _PROPERTIES, *_arrays(shape, engine, count)])


def _degree(engine: Engine) -> float:
    return min(LAYER_DEGREE * math.sqrt(engine.links), 2.0 * engine.links)


def _upper_lists(engine: Engine, count: int) -> int:
    """Return the expected lists above layer 0: one row in M is in layer 1, of those one in M…"""
    return round(count / max(engine.links - 1, 1))


def _adjacency(lists: int, count: int, most: int, mean: float) -> tuple[int, int]:
    """Return the bytes of lists of neighbours among `count` rows, and of their offsets."""
    like = IndexShape(count, 1, max_degree=most, mean_degree=mean)
    offsets = 8 * (math.ceil(lists / hnsw.BLOCK_LISTS) + 1)
    return sizes.adjacency_size(like, count, lists), offsets


def _arrays(shape: IndexShape, engine: Engine, count: int) -> list[int]:
    """Return the bytes of the sections of a lists blob; its unpacked files have the same."""
    vectors = 4 * count * shape.dimension
    if not engine.lists:
        return [vectors]
    wide = metrics.search_dimension(shape.metric, shape.dimension)
    codes = shape.pq_subspaces
    return [
        4 * shape.dimension,
        4 * engine.lists * wide,
        4 * (codes + 1),
        4 * codes * ivf.WORDS * math.ceil(shape.dimension / codes),
        8 * (engine.lists + 1),
        4 * count,
        count * math.ceil(codes / 2),
        4 * count,
        vectors,
    ]


def _lists(shape: IndexShape, engine: Engine, count: int) -> int:
    norms = 4 * count if engine.lists and shape.metric == "cosine" else 0
    return sum(_arrays(shape, engine, count)) + norms


def _layers(shape: IndexShape, engine: Engine, count: int) -> int:
    per_row = 4 * 2 * engine.links + 2 + 1 + 4 * shape.dimension
    width = _LANES * math.ceil(metrics.search_dimension(shape.metric, shape.dimension) / _LANES)
    if shape.metric != "l2" or width != shape.dimension:
        per_row += 4 * width  # the rows once more, in the space that a graph is searched in
    return count * per_row + _upper_lists(engine, count) * (4 * engine.links + 2)


def _of_centroids(shape: IndexShape, engine: Engine) -> IndexSize:
    entries = shape.files * engine.centroids
    blob = sizes.centroid_size(shape, entries)
    # In memory, beside the centroids: a byte for each number, padded, and four figures each.
    coded = _CENTROID_LANES * math.ceil((shape.dimension + 1) / _CENTROID_LANES)
    kept = entries * (4 * shape.dimension + coded + 32)
    return sizes.predict_without_shards(shape, blob, kept)
