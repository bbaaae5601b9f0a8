"""Engines: one interface per algorithm, between the arrays of `ann` and the bytes of `blobs`.

`base` is what an engine offers; `exact`, `vamana`, `hnsw` and `ivf_pq` are the engines, imported
when they are asked for. `reranked` measures answers by the table's vectors where shards have not
them as they are, `ivf_lists` finds candidates where only some lists are read; `ivf_unpacked` and
`vamana_unpacked` are what lies beside lists and graphs that are searched. `delta` is the small
shard of added rows, and `sizes` predicts how large an index of each will be, with what `links`
knows of graphs.
"""

from puffin_ann.engines.base import SearchableShard, ShardEngine
from puffin_ann.errors import DeclarationError
from puffin_ann.imports.uncollected import imported

_ENGINES = {
    "exact": ("puffin_ann.engines.exact", "ExactEngine"),
    "hnsw": ("puffin_ann.engines.hnsw", "HnswEngine"),
    "ivf_pq": ("puffin_ann.engines.ivf_pq", "IvfPqEngine"),
    "vamana": ("puffin_ann.engines.vamana", "VamanaEngine"),
}


def engine(algorithm: str) -> ShardEngine:
    """Return the engine of an algorithm; its kernels are loaded now, and only its own.

    Raises:
        DeclarationError: there is no such algorithm.
    """
    try:
        module, name = _ENGINES[algorithm]
    except KeyError:
        raise DeclarationError(
            f"algorithm {algorithm!r} is not known; choose one of {', '.join(_ENGINES)}"
        ) from None
    made: ShardEngine = getattr(imported(module), name)()
    return made


__all__ = ["SearchableShard", "ShardEngine", "engine"]
