"""Predict how large an index of any algorithm will be, before it is built.

`blobs.sizes` knows graph blobs, and what is of one size whatever the algorithm. Of layers, degrees
depend on the data, as there. Lists follow the formulas of `docs/format.md` to the byte, and so do
centroids of data files, of which there are no shards.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs import graph, hnsw, ivf, rows
from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.container import ContainerReader, length_of
from puffin_ann.blobs.sizing import sizes
from puffin_ann.blobs.sizing.shape import IndexShape
from puffin_ann.blobs.sizing.sizes import IndexSize
from puffin_ann.declaration import CENTROID, EXACT
from puffin_ann.puffin.reader import PuffinReader

LAYER_DEGREE = 3.5
"""Mean neighbours in layer 0 as a multiple of the root of M. Measured on GloVe words, 6,000 and
20,000 a shard: 14.0 to 14.7 at M 16, 10.0 at M 8."""

UPPER_DEGREE = 2.3
"""Likewise in the layers above, of which there is one list in M: 8.9 to 9.9 and 5.8."""

_PROPERTIES = 50
_CENTROID_LANES = 64


@dataclass(frozen=True)
class Engine:
    """What decides the size of a shard besides its rows.

    Attributes:
        algorithm: as declared; `vamana` and `exact` shards are graph blobs.
        links: M of an HNSW graph.
        lists: inverted lists of a shard; None: as a build takes; 0: none, every row is compared.
        centroids: centroids of a data file.
    """

    algorithm: str = "vamana"
    links: int = 16
    lists: int | None = None
    centroids: int = 1


def fields_of(engine: Engine, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of an `IndexShape`: those told that the algorithm has, and its defaults.

    Args:
        engine: names the algorithm.
        told: has a `dimension` at least.
    """
    dimension = told["dimension"]
    fields = {"metric": "cosine", **told}
    if engine.algorithm == "vamana":
        codes = max(dimension // 4, 1) if told.get("max_degree", 64) else 0
        return {"pq_subspaces": codes, **fields}
    fields["max_degree"] = 0
    if engine.algorithm == "ivf_pq":
        from puffin_ann.ann.ivf.lists import default_subspaces

        return {"pq_subspaces": default_subspaces(dimension), "pq_bits": 4, **fields}
    return {**fields, "pq_subspaces": 0}


def with_default_lists(shape: IndexShape, engine: Engine) -> Engine:
    """Return the engine with the lists that a build makes, where it does not say how many."""
    count = math.ceil(shape.rows / shape.shards)
    if engine.algorithm != "ivf_pq" or not shape.pq_subspaces:
        return replace(engine, lists=0)
    if engine.lists is not None or not count:
        return replace(engine, lists=engine.lists or 0)
    from puffin_ann.ann.ivf.lists import default_lists

    return replace(engine, lists=default_lists(count))


def predict(shape: IndexShape, engine: Engine) -> IndexSize:
    """Return the sizes of an index of a shape; of `centroid`, the one blob stands for shards."""
    if engine.algorithm == CENTROID:
        return _of_centroids(shape, engine)
    engine = with_default_lists(shape, engine)
    rows = math.ceil(shape.rows / shape.shards)
    if engine.algorithm == "hnsw":
        found = sizes.predict(shape, layers_size(shape, engine, rows), _layers(shape, engine, rows))
    elif engine.algorithm == "ivf_pq":
        found = sizes.predict(shape, lists_size(shape, engine, rows), _lists(shape, engine, rows))
    else:
        found = sizes.predict(shape)
    kept = shape.shards * _kept(shape, engine, rows)
    return replace(found, unpacked=found.unpacked + kept)


def _kept(shape: IndexShape, engine: Engine, count: int) -> int:
    """Return the bytes that searches keep in their cache beside what a shard's blob holds."""
    if engine.algorithm == "vamana":
        from puffin_ann.ann.vamana.packed_policy import expected_bytes

        return expected_bytes(count, shape.metric, shape.dimension, shape.max_degree)
    if not engine.lists:
        return 0
    from puffin_ann.ann.simd import fastscan

    # Codes once more as they are scanned; the last block of a list is half full.
    blocks = math.ceil(count / fastscan.BLOCK) + engine.lists // 2
    return blocks * fastscan.groups_of(shape.pq_subspaces) * fastscan.GROUP_BYTES


def read_shape(reader: PuffinReader) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return fields of an `IndexShape` and of an `Engine` that the first shard of a file tells.

    Raises:
        FormatError: A blob is not what its type says.
    """
    locators = [blob for kind in rows.TYPES for blob in reader.find(kind)]
    for blob in reader.find(hnsw.TYPE)[:1]:
        container = ContainerReader(reader.open(blob), hnsw.KIND)
        count = int(container.record("head", hnsw.HEAD)["rows"])
        located = [rows.open_reader(reader.open(first)) for first in locators[:1]]
        return _told_by_layers(container, sizes.cells_of(located[0], count) if located else 1)
    for blob in reader.find(ivf.TYPE)[:1]:
        return _told_by_lists(ContainerReader(reader.open(blob), ivf.KIND))
    for blob in reader.find(graph.TYPE)[:1] if locators else ():
        told = sizes.shape_of(reader.open(blob), reader.open(locators[0]))
        return told, {"algorithm": "vamana" if told["max_degree"] else EXACT}
    return None


def _told_by_lists(reader: ContainerReader) -> tuple[dict[str, Any], dict[str, Any]]:
    head = reader.record("head", ivf.HEAD)
    codes = {"pq_subspaces": int(head["pq_subspaces"])} if int(head["lists"]) else {}
    return {**_width_of(head, "lists blob"), **codes}, {"algorithm": "ivf_pq"}


def _told_by_layers(reader: ContainerReader, cells: int) -> tuple[dict[str, Any], dict[str, Any]]:
    head = reader.record("head", hnsw.HEAD)
    count, links = int(head["rows"]), int(head["links"])
    told = {**_width_of(head, "hnsw blob"), "partitions_per_shard": cells}
    if count:
        adjacency = reader.section_length("adja")
        told["mean_degree"] = sizes.mean_degree_of(adjacency, count, 2 * links, cells)
    return told, {"algorithm": "hnsw", "links": links}


def _width_of(head: np.void | NDArray[Any], where: str) -> dict[str, Any]:
    metric = metrics.name(int(head["metric"]), where)
    return {"dimension": int(head["dimension"]), "metric": metric}


def fewest_shards(shape: IndexShape, engine: Engine) -> int:
    """Return the fewest shards whose blobs Java can read; see `sizes.fewest_shards`."""
    if engine.algorithm == CENTROID:
        return 1
    if engine.algorithm == "hnsw":
        return sizes.fewest_shards(shape, lambda asked, count: layers_size(asked, engine, count))
    if engine.algorithm == "ivf_pq":

        def measure(asked: IndexShape, count: int) -> int:
            built = with_default_lists(replace(asked, rows=count, shards=1), engine)
            return lists_size(asked, built, count)

        return sizes.fewest_shards(shape, measure)
    return sizes.fewest_shards(shape)


def layers_size(shape: IndexShape, engine: Engine, count: int) -> int:
    """Return the bytes of the HNSW blob of a shard of `count` rows."""
    upper = _upper_lists(engine, count)
    return length_of(
        [
            hnsw.HEAD.itemsize,
            _PROPERTIES,
            count,
            *_adjacency(
                shape, count, count, 2 * engine.links, shape.mean_degree or _degree(engine)
            ),
            *_adjacency(shape, upper, count, engine.links, UPPER_DEGREE * math.sqrt(engine.links)),
            4 * count * shape.dimension,
        ],
        by_ranges=True,
    )


def lists_size(shape: IndexShape, engine: Engine, count: int) -> int:
    """Return the bytes of the lists blob of a shard of `count` rows."""
    return length_of(
        [ivf.HEAD.itemsize, _PROPERTIES, *_arrays(shape, engine, count)], by_ranges=True
    )


def _degree(engine: Engine) -> float:
    return min(LAYER_DEGREE * math.sqrt(engine.links), 2.0 * engine.links)


def _upper_lists(engine: Engine, count: int) -> int:
    """Return the expected lists above layer 0: one row in M is in layer 1, and so on."""
    return round(count / max(engine.links - 1, 1))


def _adjacency(
    shape: IndexShape, lists: int, count: int, most: int, mean: float
) -> tuple[int, int]:
    """Return the bytes of lists of neighbours among `count` rows, and of their offsets."""
    cells = shape.partitions_per_shard
    like = IndexShape(count, 1, max_degree=most, mean_degree=mean, partitions_per_shard=cells)
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
    per_row += sizes.space_size(shape)
    return count * per_row + _upper_lists(engine, count) * (4 * engine.links + 2)


def _of_centroids(shape: IndexShape, engine: Engine) -> IndexSize:
    entries = shape.files * engine.centroids
    blob = sizes.centroid_size(shape, entries)
    # In memory, beside the centroids: a byte for each number, padded, and four figures each.
    coded = _CENTROID_LANES * math.ceil((shape.dimension + 1) / _CENTROID_LANES)
    kept = entries * (4 * shape.dimension + coded + 32)
    return sizes.predict_without_shards(shape, blob, kept)
