"""A declared index, validated as a whole."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from puffin_ann.declaration.fields.airflow_tasks import AirflowOptions
from puffin_ann.declaration.fields.complaints import complaints_of
from puffin_ann.declaration.fields.model import Model
from puffin_ann.declaration.fields.names import NAME, TABLE_NAME
from puffin_ann.declaration.fields.options import (
    BuildOptions,
    EvaluateOptions,
    GateOptions,
    MaintainOptions,
    RebuildOptions,
    RefreshOptions,
    RetentionOptions,
)
from puffin_ann.declaration.fields.parameters import (
    AUTO,
    CENTROID,
    FORMS_OF,
    MOST_PARTITIONS_PER_SHARD,
    MOST_SHARDS,
    PARAMETERS,
    AlgorithmName,
    FormName,
    Parameters,
    VamanaParameters,
)
from puffin_ann.declaration.fields.schedules import Schedule
from puffin_ann.declaration.fields.spark import SparkOptions
from puffin_ann.errors import DeclarationError

MetricName = Literal["l2", "cosine", "ip"]

METRICS: tuple[str, ...] = get_args(MetricName)


class IndexDeclaration(Model):
    """One declared index: what to index, how, and how good it must be."""

    name: Annotated[str, Field(pattern=NAME)]
    table: Annotated[str, Field(pattern=TABLE_NAME, max_length=1000)]
    column: Annotated[str, Field(min_length=1)]
    key: str | None = None
    metric: MetricName = "cosine"
    algorithm: AlgorithmName = "vamana"
    parameters: Parameters = Field(default_factory=VamanaParameters)
    shards: int = Field(
        default=1, ge=1, le=MOST_SHARDS, description="Parts built, stored and searched as one unit."
    )
    partitions_per_shard: int = Field(
        default=32,
        ge=1,
        le=MOST_PARTITIONS_PER_SHARD,
        description="K-means cells of a shard, which route queries.",
    )
    vectors: FormName = Field(
        default="float32",
        description="How shards store vectors; answers are measured by the table's in any form.",
    )
    include: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        max_length=64,
        description="Columns of which shards keep the values, for conditions and answers.",
    )
    recall_target: float = Field(
        default=0.95, ge=0.5, le=1.0, description="A run that measures less publishes nothing."
    )
    gate: GateOptions = GateOptions()
    bad_vectors: Literal["skip", "refuse"] = "skip"
    publish: Literal["snapshot", "statistics", "tag", "auto"] = "auto"
    retention: RetentionOptions = RetentionOptions()
    refresh: RefreshOptions = RefreshOptions()
    rebuild: RebuildOptions = RebuildOptions()
    maintain: MaintainOptions = MaintainOptions()
    evaluate: EvaluateOptions = EvaluateOptions()
    schedule: Schedule | None = None
    spark: SparkOptions = Field(default_factory=SparkOptions, exclude=True)
    """Never dumped, and so not stored: the table's readers see what is stored beside the index."""
    airflow: AirflowOptions = Field(default_factory=AirflowOptions, exclude=True)
    """Likewise: it is of one Airflow, not of the index."""
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
            lines = complaints_of(error, model, f"parameters of {algorithm!r}", "parameters.")
            raise ValueError("; ".join(lines)) from None

    @model_validator(mode="after")
    def _no_shards_without_any(self) -> "IndexDeclaration":
        if self.algorithm == CENTROID:
            for name in ("shards", "partitions_per_shard"):
                if getattr(self, name) != IndexDeclaration.model_fields[name].default:
                    raise ValueError(f"algorithm {CENTROID!r} has no shards; leave {name!r} out")
        return self

    @model_validator(mode="after")
    def _columns_that_can_be_included(self) -> "IndexDeclaration":
        if self.include and self.algorithm == CENTROID:
            raise ValueError(f"algorithm {CENTROID!r} keeps nothing of rows; leave 'include' out")
        twice = sorted({name for name in self.include if self.include.count(name) > 1})
        if twice:
            raise ValueError(f"field 'include': {twice[0]!r} is named twice")
        if self.column in self.include:
            raise ValueError(
                f"field 'include': {self.column!r} is the indexed column, which shards hold anyway"
            )
        return self

    @model_validator(mode="after")
    def _vectors_the_algorithm_can_do_with(self) -> "IndexDeclaration":
        allowed = FORMS_OF[self.algorithm]
        if self.vectors not in allowed:
            raise ValueError(
                f"field 'vectors': {self.vectors!r} is not for algorithm {self.algorithm!r}, which "
                f"takes {' or '.join(map(repr, allowed))}; 'int8' and 'none' are for 'ivf_pq'"
                + (", 'int8' for 'exact', too" if self.vectors == "int8" else "")
            )
        return self

    @property
    def partitions(self) -> int:
        """Partitions of the whole index."""
        return 1 if self.algorithm == CENTROID else self.shards * self.partitions_per_shard

    @property
    def shards_built(self) -> int:
        """Shards that a build makes."""
        return 0 if self.algorithm == CENTROID else self.shards

    @property
    def publishes_by(self) -> Literal["statistics", "tag", "auto"]:
        """How its versions are published: `snapshot`, which was a way once, counts as `auto`."""
        return "auto" if self.publish == "snapshot" else self.publish

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and should not be, a sentence each."""
        found = [
            f"field 'spark': {setting!r} looks like a secret, and "
            "whoever may read the declaration, the DAG or Spark's arguments sees it: leave it to "
            "the environment of Spark's processes, to their own spark-defaults.conf, to a Hadoop "
            "credential provider, or write ${env.NAME} of a variable"
            for setting in self.spark.secrets
        ]
        if self.publish == "snapshot":
            found.append(
                "field 'publish': 'snapshot' is no way to publish any more, and is taken for "
                "'auto': write that, or leave the field out"
            )
        return tuple(f"index {self.name!r}: {warning}" for warning in found)

    def parameters_of(self, algorithm: str) -> Any:
        """Return the parameters of the algorithm in use: the declared ones, or its defaults."""
        return PARAMETERS[algorithm]() if self.algorithm == AUTO else self.parameters

    def fingerprint(self) -> str:
        """Digest of everything that shapes the built index; another value means: build again.

        The name, the recall target, the gate, and how the index is run, kept and published shape
        no byte of it.
        """
        shape = self.shape()
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]

    def shape(self) -> dict[str, Any]:
        """Return the fields that shape the index, in which indexes of earlier releases are told.

        Those had no other vectors than float32 and no included columns, and did not say so.
        """
        shape = self.model_dump(mode="json", include=SHAPING)
        if self.vectors == "float32":
            del shape["vectors"]
        if not self.include:
            del shape["include"]
        return shape

    def overridden(self, overrides: Mapping[str, Any]) -> "IndexDeclaration":
        """Return this declaration with single fields replaced, as a trigger form gives them.

        Args:
            overrides: names of fields or of algorithm parameters; None keeps what is declared.

        Raises:
            DeclarationError: a name or value is not allowed.
        """
        data = {
            **self.model_dump(mode="python"),
            "spark": self.spark,
            "airflow": self.airflow,
        }
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
    "vectors",
    "include",
}
"""Fields that shape the index; a change of one makes the next run build it again."""

_OVERRIDABLE = ("shards", "partitions_per_shard", "recall_target")


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
        lines = complaints_of(error, IndexDeclaration, "fields")
        raise DeclarationError(f"{source}: " + "; ".join(lines)) from None
