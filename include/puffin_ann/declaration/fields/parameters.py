"""The algorithms, and the parameters of each."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from puffin_ann.declaration.fields.model import Model

AlgorithmName = Literal["vamana", "hnsw", "ivf_pq", "centroid", "exact", "auto"]

CENTROID = "centroid"
"""The algorithm that has no shards: centroids of data files, whose rows stay in the table alone."""

EXACT = "exact"
"""The algorithm that compares every row, in every shard."""

AUTO = "auto"
"""Not an algorithm: the build measures which one is fastest on the table's own rows."""


MOST_SHARDS, MOST_PARTITIONS_PER_SHARD = 10_000, 4096
"""That may be declared."""

FormName = Literal["float32", "float16", "int8", "none"]

FORMS_OF: Mapping[str, tuple[FormName, ...]] = {
    "vamana": ("float32", "float16"),
    "hnsw": ("float32", "float16"),
    "ivf_pq": ("float32", "float16", "int8", "none"),
    EXACT: ("float32", "float16", "int8"),
    CENTROID: ("float32",),
    AUTO: ("float32", "float16"),
}
"""The forms that shards of an algorithm store vectors in: a graph is walked by vectors, so those
that do not hold them well enough are not offered for it."""


class VamanaParameters(Model):
    """Parameters of a Vamana graph, and of its codes, named as in the DiskANN paper."""

    R: int = Field(
        default=64,
        ge=4,
        le=512,
        description="Largest out-degree of a node; half of it, but 32 at least, where rows have "
        "80 dimensions or more.",
    )
    L: int = Field(
        default=100,
        ge=8,
        le=2000,
        description="Candidates kept by the search for the place of a row that is inserted: by "
        "refreshes and merges, and by builds of up to 4,096 rows. Larger ones go by partitions.",
    )
    alpha: float = Field(default=1.2, ge=1.0, le=2.0, description="RobustPrune's slack.")
    pq_m: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Sub-quantisers, bytes per code, where searches read codes; none means a "
        "quarter of the dimension.",
    )
    pq_nbits: int = Field(
        default=8, ge=4, le=8, description="Bits per sub-quantiser, where searches read codes."
    )
    beam: Literal["auto", "full", "pq", "edges"] = Field(
        default="auto",
        description="What searches read: rows, their codes, or codes beside the edges.",
    )


class HnswParameters(Model):
    """Parameters of an HNSW graph, named as in the paper and in hnswlib."""

    M: int = Field(default=16, ge=2, le=256, description="Links of a row in an upper layer.")
    ef_construction: int = Field(
        default=200, ge=8, le=4000, description="Candidates kept while building."
    )
    reproducible: bool = Field(
        default=True,
        description="Add rows by one thread, so that the same seed and rows give the same index.",
    )


class IvfPqParameters(Model):
    """Parameters of inverted lists with product-quantised codes of 4 bits."""

    lists: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Lists of a shard; none means about the root of its rows.",
    )
    pq_m: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Codes of a row, two a byte; none means one for each dimension or two.",
    )
    pq_nbits: Literal[4] = Field(default=4, description="Bits per code: a scan needs 4.")


class CentroidParameters(Model):
    """Parameters of the tier that keeps centroids of whole data files, and no vectors."""

    centroids: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Centroids of a data file, or of each part that a large one is read in.",
    )


class ExactParameters(Model):
    """The exact engine has no parameters."""


class AutoParameters(Model):
    """There are none: the engine that is chosen takes its defaults."""


Parameters = (
    VamanaParameters
    | HnswParameters
    | IvfPqParameters
    | CentroidParameters
    | ExactParameters
    | AutoParameters
)
PARAMETERS: Mapping[str, type[Model]] = {
    "vamana": VamanaParameters,
    "hnsw": HnswParameters,
    "ivf_pq": IvfPqParameters,
    CENTROID: CentroidParameters,
    EXACT: ExactParameters,
    AUTO: AutoParameters,
}
