"""Index declarations: the YAML files under `include/indexes/`, validated once, here.

Imports nothing heavier than pydantic and YAML, since every parse of a DAG file pays for it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from puffin_ann.errors import DeclarationError

MetricName = Literal["l2", "cosine", "ip"]
AlgorithmName = Literal["vamana", "hnsw", "ivf_pq", "centroid", "exact", "auto"]

CENTROID = "centroid"
"""The algorithm that has no shards: centroids of data files, whose rows stay in the table alone."""

EXACT = "exact"
"""The algorithm that compares every row, in every shard."""

AUTO = "auto"
"""Not an algorithm: the build measures which one is fastest on the table's own rows."""

MAX_GROUPS = 100
"""Most group ids that travel through XCom, whatever the number of shards."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VamanaParameters(_Model):
    """Parameters of a Vamana graph with product-quantised codes, named as in the DiskANN paper."""

    R: int = Field(default=64, ge=4, le=512, description="Largest out-degree of a node.")
    L: int = Field(default=100, ge=8, le=2000, description="Candidates kept while building.")
    alpha: float = Field(default=1.2, ge=1.0, le=2.0, description="RobustPrune's slack.")
    pq_m: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Sub-quantisers, bytes per code; none means a quarter of the dimension.",
    )
    pq_nbits: int = Field(default=8, ge=4, le=8, description="Bits per sub-quantiser.")
    beam: Literal["auto", "full", "pq", "edges"] = Field(
        default="auto",
        description="What searches read: rows, their codes, or codes beside the edges.",
    )


class HnswParameters(_Model):
    """Parameters of an HNSW graph, named as in the paper and in hnswlib."""

    M: int = Field(default=16, ge=2, le=256, description="Links of a row in an upper layer.")
    ef_construction: int = Field(
        default=200, ge=8, le=4000, description="Candidates kept while building."
    )
    reproducible: bool = Field(
        default=True,
        description="Add rows by one thread, so that the same seed and rows give the same index.",
    )


class IvfPqParameters(_Model):
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


class CentroidParameters(_Model):
    """Parameters of the tier that keeps centroids of whole data files, and no vectors."""

    centroids: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Centroids of a data file, or of each part that a large one is read in.",
    )


class ExactParameters(_Model):
    """The exact engine has no parameters."""


class AutoParameters(_Model):
    """There are none: the engine that is chosen takes its defaults."""


Parameters = (
    VamanaParameters
    | HnswParameters
    | IvfPqParameters
    | CentroidParameters
    | ExactParameters
    | AutoParameters
)
PARAMETERS: Mapping[str, type[_Model]] = {
    "vamana": VamanaParameters,
    "hnsw": HnswParameters,
    "ivf_pq": IvfPqParameters,
    CENTROID: CentroidParameters,
    EXACT: ExactParameters,
    AUTO: AutoParameters,
}


class GateOptions(_Model):
    """How the recall gate measures before anything is published."""

    queries: int = Field(default=200, ge=10, le=10_000, description="Rows that serve as queries.")
    k: int = Field(default=10, ge=1, le=1000, description="Neighbours asked for.")


class BuildOptions(_Model):
    """How the build is spread over Spark applications."""

    max_submits: int = Field(
        default=16, ge=1, le=MAX_GROUPS, description="Most spark-submits that build shard groups."
    )


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Duration = Annotated[str, Field(pattern=r"^\d{1,6}[smhd]$")]
"""A number with its unit, such as `90s`, `30m`, `24h` or `7d`."""


def seconds_of(duration: str) -> int:
    """Return a duration in seconds."""
    return int(duration[:-1]) * SECONDS[duration[-1]]


class RetentionOptions(_Model):
    """Which versions of the index stay when newer ones are published."""

    versions: int = Field(
        default=2, ge=1, le=100, description="Newest versions kept, beside those that tags name."
    )
    grace: Duration = Field(
        default="24h",
        description="What is no longer needed stays so long: joins may still read it.",
    )

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return seconds_of(self.grace) * 1000


class RefreshOptions(_Model):
    """When the index follows its table, and how."""

    min_rows: int = Field(
        default=1000,
        ge=0,
        description="Changes of fewer rows wait for more, up to max_lag: searches mask and scan.",
    )
    max_lag: Duration = Field(
        default="1h", description="Changes older than this are published however few they are."
    )
    min_coverage: float = Field(
        default=0.99,
        ge=0.0,
        le=1.0,
        description="Share of live rows covered under which the index counts as stale.",
    )
    delta_ratio: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="Rows in deltas, as a share of those in shards, above which they are merged.",
    )
    poll_interval: Duration = Field(
        default="60s", description="How often the table is asked for new snapshots."
    )
    watch: bool = Field(
        default=True, description="Refresh when the table changes, without a schedule."
    )


class RebuildOptions(_Model):
    """When shards, or the whole index, are built anew instead of being refreshed."""

    tombstone_ratio: float = Field(
        default=0.2, gt=0.0, le=1.0, description="Share of dead rows above which a shard is due."
    )
    drift: float = Field(
        default=1.5,
        ge=1.0,
        description="Distance of new rows to their centroids, as a multiple of that of the rows "
        "the centroids were trained on, above which the whole index is due.",
    )
    imbalance: float = Field(
        default=3.0,
        ge=1.0,
        description="Rows of the largest shard, as a multiple of the mean, above which the whole "
        "index is due.",
    )


class MaintainOptions(_Model):
    """The maintenance window: merges and rebuilds due, registrations, retention, clean-up."""

    schedule: str | None = Field(default="@daily", description="Cron expression; null for never.")


class EvaluateOptions(_Model):
    """How recall is measured over time, on the table as it is."""

    schedule: str | None = Field(default="@weekly", description="Cron expression; null for never.")
    queries: int = Field(default=200, ge=10, le=10_000, description="Rows that serve as queries.")


class SparkOptions(_Model):
    """How Airflow submits to Spark."""

    conn_id: str = Field(default="spark_default", description="Airflow connection of the master.")
    conf: dict[str, str] = Field(default_factory=dict, description="Spark configuration.")

    @field_validator("conf", mode="before")
    @classmethod
    def _numbers_as_text(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        simple = (int, float, bool)
        return {str(k): json.dumps(v) if isinstance(v, simple) else v for k, v in value.items()}


class IndexDeclaration(_Model):
    """One declared index: what to index, how, and how good it must be."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    table: Annotated[str, Field(pattern=r"^[^.\s]+(\.[^.\s]+){2,}$")]
    column: Annotated[str, Field(min_length=1)]
    key: str | None = None
    metric: MetricName = "cosine"
    algorithm: AlgorithmName = "vamana"
    parameters: Parameters = Field(default_factory=VamanaParameters)
    shards: int = Field(
        default=1, ge=1, le=10_000, description="Parts built, stored and searched as one unit."
    )
    partitions_per_shard: int = Field(
        default=8, ge=1, le=4096, description="K-means cells of a shard, which route queries."
    )
    recall_target: float = Field(
        default=0.95, ge=0.5, le=1.0, description="A run that measures less publishes nothing."
    )
    gate: GateOptions = GateOptions()
    bad_vectors: Literal["skip", "refuse"] = "skip"
    publish: Literal["snapshot", "statistics", "auto"] = "auto"
    retention: RetentionOptions = RetentionOptions()
    refresh: RefreshOptions = RefreshOptions()
    rebuild: RebuildOptions = RebuildOptions()
    maintain: MaintainOptions = MaintainOptions()
    evaluate: EvaluateOptions = EvaluateOptions()
    schedule: str | None = None
    spark: SparkOptions = SparkOptions()
    build: BuildOptions = BuildOptions()
    seed: int = Field(default=0, ge=0, lt=2**32)

    @model_validator(mode="before")
    @classmethod
    def _parameters_of_the_algorithm(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        algorithm = data.get("algorithm", "vamana")
        model = PARAMETERS.get(algorithm) if isinstance(algorithm, str) else None
        given = data.get("parameters") or {}
        if model is None or not isinstance(given, Mapping):
            return data
        try:
            return {**data, "parameters": model.model_validate(dict(given))}
        except ValidationError as error:
            raise ValueError("; ".join(_complaints(error, prefix="parameters."))) from None

    @model_validator(mode="after")
    def _no_shards_without_any(self) -> "IndexDeclaration":
        if self.algorithm == CENTROID:
            for name in ("shards", "partitions_per_shard"):
                if getattr(self, name) != IndexDeclaration.model_fields[name].default:
                    raise ValueError(f"algorithm {CENTROID!r} has no shards; leave {name!r} out")
        return self

    @property
    def partitions(self) -> int:
        """Partitions of the whole index."""
        return 1 if self.algorithm == CENTROID else self.shards * self.partitions_per_shard

    @property
    def shards_built(self) -> int:
        """Shards that a build makes."""
        return 0 if self.algorithm == CENTROID else self.shards

    def parameters_of(self, algorithm: str) -> Any:
        """Return the parameters of the algorithm in use: the declared ones, or its defaults."""
        return PARAMETERS[algorithm]() if self.algorithm == AUTO else self.parameters

    def fingerprint(self) -> str:
        """Digest of everything that shapes the built index; another value means: build again.

        The name, the recall target, the gate, and how the index is run, kept and published shape
        no byte of it.
        """
        shape = self.model_dump(mode="json", include=SHAPING)
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]

    def overridden(self, overrides: Mapping[str, Any]) -> "IndexDeclaration":
        """Return this declaration with single fields replaced, as a trigger form gives them.

        Args:
            overrides: names of fields or of algorithm parameters; None keeps what is declared.

        Raises:
            DeclarationError: a name or value is not allowed.
        """
        data = self.model_dump(mode="python")
        names = PARAMETERS[self.algorithm].model_fields
        for name, value in overrides.items():
            if value is None:
                continue
            target = data["parameters"] if name in names else data
            if name not in names and name not in _OVERRIDABLE:
                allowed = ", ".join([*_OVERRIDABLE, *names])
                raise DeclarationError(
                    f"index {self.name!r}: {name!r} cannot be set for a run; allowed: {allowed}"
                )
            target[name] = value
        return parse_declaration(data, source=f"index {self.name!r}, values given for this run")


SHAPING = {
    "table",
    "column",
    "key",
    "metric",
    "algorithm",
    "parameters",
    "shards",
    "partitions_per_shard",
    "bad_vectors",
    "seed",
}
"""Fields that shape the index; a change of one makes the next run build it anew."""

_OVERRIDABLE = ("shards", "partitions_per_shard", "recall_target")


def _complaints(error: ValidationError, prefix: str = "") -> Iterable[str]:
    for item in error.errors():
        field = prefix + ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "value_error" and not item["loc"]:
            yield message
        elif item["type"] == "missing":
            yield f"field {field!r} is missing"
        elif item["type"] == "extra_forbidden":
            yield f"field {field!r} is unknown"
        else:
            yield f"field {field!r}: {item['input']!r} is not allowed: {message}"


def parse_declaration(data: object, *, source: str) -> IndexDeclaration:
    """Validate one declaration.

    Args:
        data: what the YAML file held.
        source: what an error names as the origin, usually the file's path.

    Raises:
        DeclarationError: names the source, the field, the value and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise DeclarationError(
            f"{source}: expected a mapping of fields such as 'table:' and 'column:', "
            f"found {type(data).__name__}"
        )
    try:
        return IndexDeclaration.model_validate(data)
    except ValidationError as error:
        lines = list(_complaints(error))
        if any("is unknown" in line for line in lines):
            lines.append(f"known fields are: {', '.join(IndexDeclaration.model_fields)}")
        raise DeclarationError(f"{source}: " + "; ".join(lines)) from None


def load_declaration(path: Path) -> IndexDeclaration:
    """Read and validate one declaration file; the name defaults to the file's stem.

    Raises:
        DeclarationError: the file is missing, is not YAML, or is not a valid declaration.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise DeclarationError(f"{path}: is not valid YAML: {error}") from None
    if isinstance(data, dict):
        data.setdefault("name", path.stem)
    return parse_declaration(data, source=str(path))


def declaration_files(folder: Path) -> list[Path]:
    """Return the declaration files of a folder, in order of name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def load_declarations(folder: Path) -> list[IndexDeclaration]:
    """Read every declaration of a folder, in order of name.

    Raises:
        DeclarationError: one of them is not valid, or two declare the same index.
    """
    found: dict[str, tuple[IndexDeclaration, Path]] = {}
    for path in declaration_files(folder):
        declaration = load_declaration(path)
        if declaration.name in found:
            raise DeclarationError(
                f"{path}: field 'name': {declaration.name!r} is already declared in "
                f"{found[declaration.name][1]}; index names must differ"
            )
        found[declaration.name] = (declaration, path)
    return [declaration for declaration, _ in found.values()]


METRICS: tuple[str, ...] = get_args(MetricName)
