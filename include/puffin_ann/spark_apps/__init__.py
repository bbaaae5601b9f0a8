"""Spark applications, one file for each stage: what a `spark-submit` is given by its path.

    train          sample the table, train centroids and codes
    assign         read the table once and stage its rows by shard
    build_group    build one group of shards
    gate           measure the recall of the staged index
    read_changes   read what changed in the table since the base version
    apply_group    apply what changed to one group of shards
    evaluate       measure the recall of the published index

All of them are `puffin_ann.lifecycle.runs.spark_app.main`, with the name of the stage. They are
files of their own so that an application has the name of its stage where nobody names it. The
package must be installed where drivers and executors run.
"""

from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).resolve().parent
"""Where the applications are."""

Stage = Literal["train", "assign", "build_group", "gate", "read_changes", "apply_group", "evaluate"]
"""A stage that runs on Spark."""


def application(stage: Stage) -> Path:
    """Return the file of a stage's application."""
    return FOLDER / f"{stage}.py"
