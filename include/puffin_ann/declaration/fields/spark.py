"""How stages are submitted to Spark, as far as a declaration may say."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from puffin_ann.declaration.fields.model import Model
from puffin_ann.declaration.fields.names import NAME
from puffin_ann.redaction import is_secret_name, redact

SPARK_SUBMIT, LIVY = "spark_submit", "livy"
"""Names of what submits without being registered by a DAG file."""

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
Variable = Annotated[str, Field(pattern=VARIABLE)]

LISTED = r"^[^,]+$"
Listed = Annotated[str, Field(pattern=LISTED)]
"""Spark has commas between those of a list."""


class SparkOptions(Model):
    """How Airflow submits to Spark."""

    submit: Annotated[str, Field(pattern=NAME)] = Field(
        default=SPARK_SUBMIT,
        description=f"What submits: {SPARK_SUBMIT}, {LIVY}, or a name that the DAG file registers.",
    )
    conn_id: str = Field(
        default="spark_default", min_length=1, description="Airflow connection of the master."
    )
    deploy_mode: Literal["client", "cluster"] | None = Field(
        default=None, description="Where the driver runs; none: as the connection says."
    )
    conf: dict[str, str] = Field(
        default_factory=dict, description="Spark configuration.", repr=False
    )
    env: dict[Variable, str] = Field(
        default_factory=dict, description="Variables of driver and executors.", repr=False
    )
    files: tuple[Listed, ...] = Field(
        default=(),
        description="Files that Spark puts beside each executor.",
        repr=False,
    )
    py_files: tuple[Listed, ...] = Field(
        default=(),
        description="Python files and archives that Spark puts on the import path.",
        repr=False,
    )
    archives: tuple[Listed, ...] = Field(
        default=(),
        description="Archives that Spark unpacks beside each executor, PATH#FOLDER.",
        repr=False,
    )
    applications: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of our applications as the driver sees it; none: that of this package.",
        repr=False,
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of settings that look as if secrets were written into the declaration.

        One that refers to a variable, such as `${env.AWS_SECRET_ACCESS_KEY}`, is none.
        """
        return tuple(dict.fromkeys(name for name, _ in self._secrets()))

    @property
    def secret_values(self) -> tuple[str, ...]:
        """What those settings have, as it is written."""
        return tuple(value for _, value in self._secrets())

    def _secrets(self) -> Iterator[tuple[str, str]]:
        lists = {"files": self.files, "py_files": self.py_files, "archives": self.archives}
        given = (
            *self.conf.items(),
            *((f"env.{name}", value) for name, value in self.env.items()),
            *((name, value) for name, values in lists.items() for value in values),
            ("applications", self.applications or ""),
        )
        for name, value in given:
            is_secret = is_secret_name(name) or redact(value) != value
            if (
                is_secret
                and not value.startswith("${")
                and value.lower() not in ("", "true", "false")
            ):
                yield name, value

    @property
    def made_by_fields(self) -> dict[str, str]:
        """Settings of Spark that other fields than `conf` make."""
        lists = {
            "spark.files": self.files,
            "spark.submit.pyFiles": self.py_files,
            "spark.archives": self.archives,
        }
        return {
            **{f"spark.executorEnv.{name}": value for name, value in self.env.items()},
            **{name: ",".join(listed) for name, listed in lists.items() if listed},
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which a machine allows or refuses what these options set.

        Those of Spark's settings, and two of ours for what Spark has no one name for.
        """
        more = {
            "spark.submit.deployMode": self.deploy_mode,
            "spark.applications": self.applications,
        }
        return (
            *self.conf,
            *self.made_by_fields,
            *(f"spark.driverEnv.{name}" for name in self.env),
            *(name for name, value in more.items() if value is not None),
        )

    def as_conf(self) -> dict[str, str]:
        """Return all that is a setting of Spark as one, for what takes nothing else."""
        return {**self.conf, **self.made_by_fields}

    @field_validator("conf", "env", mode="before")
    @classmethod
    def _numbers_as_text(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        simple = (int, float, bool)
        return {str(k): json.dumps(v) if isinstance(v, simple) else v for k, v in value.items()}

    @model_validator(mode="after")
    def _said_once(self) -> "SparkOptions":
        twice = self.made_by_fields.keys() & self.conf.keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is set by a field and by 'conf'; keep one of them")
        if self.deploy_mode is not None and "spark.submit.deployMode" in self.conf:
            raise ValueError("set 'deploy_mode', and not 'spark.submit.deployMode' in 'conf'")
        if self.deploy_mode is not None and self.submit == LIVY:
            raise ValueError("leave 'deploy_mode' out: Livy's own configuration decides it")
        return self
