"""How Airflow runs the tasks of an index's DAGs, as far as a declaration may say."""

from typing import Annotated

from pydantic import Field

from puffin_ann.declaration.fields.model import Model
from puffin_ann.declaration.fields.options import PositiveDuration

Named = Annotated[str, Field(min_length=1, max_length=250)]
Tag = Annotated[str, Field(min_length=1, max_length=100)]


class AirflowOptions(Model):
    """How Airflow runs the tasks of this index; what is left out is as the DAG file has it."""

    pool: Named | None = Field(default=None, description="Airflow pool of the tasks.")
    priority_weight: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Of two tasks, the greater is started first."
    )
    queue: Named | None = Field(default=None, description="Queue of the tasks, for its workers.")
    retries: int | None = Field(
        default=None, ge=0, le=100, description="How often a task is tried again."
    )
    retry_delay: PositiveDuration | None = Field(
        default=None, description="Time between two attempts."
    )
    timeout: PositiveDuration | None = Field(
        default=None, description="Longest time of one attempt; then it is cancelled."
    )
    owner: Named | None = Field(default=None, description="Owner of the tasks.")
    tags: tuple[Tag, ...] = Field(default=(), description="Tags of the DAGs, beside ours.")
