"""Tables of LanceDB, the peer that has vectors in files beside other columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAME = "rows"


def connect(folder: Path) -> Any:
    """Return a connection to the tables of a folder."""
    import lancedb

    return lancedb.connect(str(folder / "lance"))


def create_table(
    connection: Any, vectors: NDArray[np.float32], columns: Mapping[str, Any] | None = None
) -> Any:
    """Write vectors to a table, with their numbers in column `id`.

    Args:
        connection: as `connect` gives it, or another of LanceDB's.
        vectors: (n, d) float32.
        columns: further ones, n values each.
    """
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    rows = {"id": np.arange(len(vectors)), **(columns or {}), "vector": fixed}
    return connection.create_table(NAME, pa.table(rows))


def index_by_graph(table: Any) -> None:
    """Make one graph over all rows."""
    table.create_index(
        metric="l2", vector_column_name="vector", index_type="IVF_HNSW_SQ", num_partitions=1
    )


def index_by_lists(table: Any, dimension: int, lists: int) -> None:
    """Make lists of rows by code, a byte for each four numbers."""
    table.create_index(
        metric="l2",
        vector_column_name="vector",
        index_type="IVF_PQ",
        num_partitions=lists,
        num_sub_vectors=dimension // 4,
    )
