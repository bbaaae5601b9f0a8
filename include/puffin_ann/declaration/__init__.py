"""Index declarations: the YAML files under `include/indexes/`, validated once, here.

Imports nothing heavier than pydantic and YAML, since every parse of a DAG file pays for it; and
of its own modules only those of which something is asked for: a search needs the names of the
algorithms, and no declaration.

`index` is a declaration as a whole, made of `fields`. `folder` finds the folders of declarations,
`files` reads them, by `reading` what is in a file; `allowed` says which settings of Spark this
machine permits. `json_schema` serves editors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puffin_ann.declaration.fields.airflow_tasks import (
        AirflowOptions,
    )
    from puffin_ann.declaration.fields.complaints import (
        in_words,
    )
    from puffin_ann.declaration.fields.names import (
        check_name,
        is_name,
    )
    from puffin_ann.declaration.fields.options import (
        MAX_GROUPS,
        ApprovalBounds,
        BuildOptions,
        Duration,
        EvaluateOptions,
        GateOptions,
        MaintainOptions,
        RebuildOptions,
        RefreshOptions,
        RetentionOptions,
        seconds_of,
    )
    from puffin_ann.declaration.fields.parameters import (
        AUTO,
        CENTROID,
        EXACT,
        FORMS_OF,
        MOST_PARTITIONS_PER_SHARD,
        MOST_SHARDS,
        PARAMETERS,
        AlgorithmName,
        AutoParameters,
        CentroidParameters,
        ExactParameters,
        FormName,
        HnswParameters,
        IvfPqParameters,
        Parameters,
        VamanaParameters,
    )
    from puffin_ann.declaration.fields.spark import (
        LIVY,
        SPARK_SUBMIT,
        SparkOptions,
    )
    from puffin_ann.declaration.files import (
        Declared,
        declaration_files,
        load_declaration,
        load_declarations,
        read_declarations,
    )
    from puffin_ann.declaration.folder import (
        declarations_folders,
        folder_beside,
        known_declarations,
    )
    from puffin_ann.declaration.index import (
        METRICS,
        SHAPING,
        IndexDeclaration,
        MetricName,
        parse_declaration,
    )

_NAMES_OF = {
    "fields.airflow_tasks": "AirflowOptions",
    "fields.complaints": "in_words",
    "files": "Declared declaration_files load_declaration load_declarations read_declarations",
    "folder": "declarations_folders folder_beside known_declarations",
    "index": "IndexDeclaration METRICS MetricName SHAPING parse_declaration",
    "fields.names": "check_name is_name",
    "fields.options": (
        "ApprovalBounds BuildOptions Duration EvaluateOptions GateOptions MAX_GROUPS "
        "MaintainOptions RebuildOptions RefreshOptions RetentionOptions seconds_of"
    ),
    "fields.parameters": (
        "AUTO AlgorithmName AutoParameters CENTROID CentroidParameters EXACT ExactParameters "
        "FORMS_OF FormName HnswParameters IvfPqParameters MOST_PARTITIONS_PER_SHARD MOST_SHARDS "
        "PARAMETERS Parameters VamanaParameters"
    ),
    "fields.spark": "LIVY SPARK_SUBMIT SparkOptions",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

__all__ = [
    "AUTO",
    "CENTROID",
    "EXACT",
    "FORMS_OF",
    "LIVY",
    "MAX_GROUPS",
    "METRICS",
    "MOST_PARTITIONS_PER_SHARD",
    "MOST_SHARDS",
    "PARAMETERS",
    "SHAPING",
    "SPARK_SUBMIT",
    "AirflowOptions",
    "AlgorithmName",
    "ApprovalBounds",
    "AutoParameters",
    "BuildOptions",
    "CentroidParameters",
    "Declared",
    "Duration",
    "EvaluateOptions",
    "ExactParameters",
    "FormName",
    "GateOptions",
    "HnswParameters",
    "IndexDeclaration",
    "IvfPqParameters",
    "MaintainOptions",
    "MetricName",
    "Parameters",
    "RebuildOptions",
    "RefreshOptions",
    "RetentionOptions",
    "SparkOptions",
    "VamanaParameters",
    "check_name",
    "declaration_files",
    "declarations_folders",
    "folder_beside",
    "in_words",
    "is_name",
    "known_declarations",
    "load_declaration",
    "load_declarations",
    "parse_declaration",
    "read_declarations",
    "seconds_of",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, from the module that has it."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
