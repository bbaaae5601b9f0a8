"""How an index is built, kept, refreshed, maintained and evaluated; none shapes its bytes."""

from typing import Annotated

from pydantic import Field

from puffin_ann.declaration.fields.model import Model
from puffin_ann.declaration.fields.schedules import Schedule

MAX_GROUPS = 100
"""Most group ids that travel through XCom, whatever the number of shards."""


MOST_ROWS = 2**63 - 1
"""Plans and versions hold declarations as JSON: numbers of any length cannot be read back."""


class GateOptions(Model):
    """How the recall gate measures before anything is published."""

    queries: int = Field(default=200, ge=10, le=10_000, description="Rows that serve as queries.")
    k: int = Field(default=10, ge=1, le=1000, description="Neighbours asked for.")


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

DURATION = r"^[0-9]{1,6}[smhd]$"
Duration = Annotated[str, Field(pattern=DURATION)]
"""A number with its unit, such as `90s`, `30m`, `24h` or `7d`."""

POSITIVE_DURATION = r"^0{0,5}[1-9][0-9]{0,5}[smhd]$"
PositiveDuration = Annotated[str, Field(pattern=POSITIVE_DURATION)]
"""Likewise, and not none at all."""


def seconds_of(duration: str) -> int:
    """Return a duration in seconds."""
    return int(duration[:-1]) * SECONDS[duration[-1]]


class ApprovalBounds(Model):
    """The expected cost of work on whole shards above which it waits for a person's approval."""

    rows: int | None = Field(
        default=None, ge=0, le=MOST_ROWS, description="Live rows that are built."
    )
    bytes: int | None = Field(
        default=None, ge=0, le=MOST_ROWS, description="New bytes; not known before the first build."
    )
    work: Duration | None = Field(
        default=None, description="Work of one process, by the rates of earlier runs."
    )


class BuildOptions(Model):
    """How the build is spread over Spark applications, and when it is asked about first."""

    max_submits: int = Field(
        default=16, ge=1, le=MAX_GROUPS, description="Most spark-submits that build shard groups."
    )
    approve_above: ApprovalBounds | None = Field(
        default=None, description="Expected cost above which a build or merge waits for approval."
    )
    approval_expires: PositiveDuration = Field(
        default="7d", description="A build that nobody approved for so long is not done."
    )


class RetentionOptions(Model):
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


class RefreshOptions(Model):
    """When the index follows its table, and how."""

    min_rows: int = Field(
        default=1000,
        ge=0,
        le=MOST_ROWS,
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
    poll_interval: PositiveDuration = Field(
        default="60s",
        description="How often the table is asked for new snapshots.",
    )
    watch: bool = Field(
        default=True, description="Refresh when the table changes, without a schedule."
    )


class RebuildOptions(Model):
    """When shards, or the whole index, are built again instead of being refreshed."""

    tombstone_ratio: float = Field(
        default=0.2,
        gt=0.0,
        le=1.0,
        description="Share of deleted rows above which a shard is rebuilt.",
    )
    drift: float = Field(
        default=1.5,
        ge=1.0,
        description="Distance of new rows to their centroids, as a multiple of that of the rows "
        "the centroids were trained on, above which the whole index is built.",
    )
    imbalance: float = Field(
        default=3.0,
        ge=1.0,
        description="Rows of the largest shard, as a multiple of the mean, above which the whole "
        "index is due.",
    )


class MaintainOptions(Model):
    """The maintenance window: merges and rebuilds due, registrations, retention, clean-up."""

    schedule: Schedule | None = Field(
        default="@daily", description="Cron expression; null for never."
    )


class EvaluateOptions(Model):
    """How recall is measured over time, on the table as it is."""

    schedule: Schedule | None = Field(
        default="@weekly", description="Cron expression; null for never."
    )
    queries: int = Field(default=200, ge=10, le=10_000, description="Rows that serve as queries.")
