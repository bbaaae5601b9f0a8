"""What is submitted to Spark for one stage of a run, whatever submits it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from airflow.sdk import BaseOperator

from puffin_ann.declaration import SparkOptions
from puffin_ann.spark_apps import Stage, application


@dataclass(frozen=True)
class Submission:
    """A Spark application of ours with all that it is given: what a backend gets to submit.

    Nothing of it is a template: what is declared is data. Airflow stores its text in mapped tasks:
    that has no more than the name.

    Attributes:
        name: of the application, for people; several runs have the same.
        application: path or URI of its Python file, as `spark.applications` or this machine has it.
        spark: what is declared of it: `conf`, `env`, `files`, `conn_id` and so on; `as_conf()` has
            all of them that are settings of Spark.
        arguments: of the application.
    """

    name: str
    application: str = field(repr=False)
    spark: SparkOptions = field(repr=False)
    arguments: Sequence[str] = ()

    @classmethod
    def of(cls, stage: Stage, name: str, spark: SparkOptions) -> "Submission":
        """Return what is submitted for a stage, but for the arguments of a run."""
        here = application(stage)
        folder = here.parent if spark.applications is None else spark.applications.rstrip("/")
        conf = {**_catalog_configuration(), **spark.conf}
        return cls(name, f"{folder}/{here.name}", spark.model_copy(update={"conf": conf}))

    def given(self, arguments: Sequence[str]) -> "Submission":
        """Return the submission with the arguments of a run."""
        return replace(self, arguments=tuple(arguments))


MakeOperator = Callable[[Submission], BaseOperator]
"""What a backend is: it returns the operator that submits, waits for the end, fails where Spark
does, and by `on_kill` cancels. The operator is executed as it is, so that nothing is rendered."""


def _catalog_configuration() -> dict[str, str]:
    """Return the Spark configuration that lets executors find PyIceberg's configuration.

    Only its location: catalog credentials are never passed as arguments.
    """
    home = os.environ.get("PYICEBERG_HOME")
    return {"spark.executorEnv.PYICEBERG_HOME": home} if home else {}
