"""What runs note in an index: the properties of its routing blob.

They are free text, which others may change. None of it decides what an index answers, so a
malformed value is ignored; except for file ids, which must never be used again. By the name of the
declared column searches are refused, or left to an older version: `search/version/indexed_column`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, Field, FiniteFloat, TypeAdapter, ValidationError

from puffin_ann.blobs.version.routing import RUN_ID
from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.documents.run import Trial
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.policy.decision import Drift, Rates
from puffin_ann.lifecycle.policy.kept_recall import ShardRecalls
from puffin_ann.lifecycle.policy.undone import Undone

MOST_FILES = 1 << 32

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Noted = TypeVar("Noted")

_SECONDS = TypeAdapter(dict[str, FiniteFloat])
_COUNTS = TypeAdapter(dict[str, Count])
_FIELD_IDS = TypeAdapter(tuple[Count, ...])
_RATES = TypeAdapter(Rates)
_DRIFT = TypeAdapter(Drift)
_TRIALS = TypeAdapter(tuple[Trial, ...])
_RECALLS = TypeAdapter(ShardRecalls)
_UNDONE = TypeAdapter(Undone)
_RECORDS = TypeAdapter(tuple[RunRecord, ...])


class Notes(TypedDict, total=False):
    """What a run may note.

    Attributes:
        fingerprint: of the declaration.
        declaration: in force, as JSON.
        run_id: of the run that published the version.
        drift: how well the centroids fit the rows added since they were made.
        next_file_id: above any file id that was in use at some time.
        column_type: of the indexed column's elements.
        included: field ids of the columns that shards keep values of.
        stage_seconds: how long each stage of the run took.
        vector_bytes_read: bytes of vectors that the run read.
        skipped: rows that are not indexed, by reason.
        rates: how fast the work went.
        shard_recalls: what shards found when they were first compared since the build.
        undone: what a run was to do to whole shards, and left.
        trials: what engines did on a sample, where `algorithm: auto` chose one.
        history: records of the runs, the newest first.
        renamed_from: name of the index before it was renamed, and the run id of that version.
    """

    fingerprint: str
    declaration: str
    run_id: str
    drift: Drift
    next_file_id: int
    column_type: str
    included: Sequence[int]
    stage_seconds: dict[str, float]
    vector_bytes_read: int
    skipped: dict[str, int]
    rates: Rates
    shard_recalls: ShardRecalls
    undone: Undone
    trials: Sequence[Trial]
    history: Sequence[RunRecord]
    renamed_from: dict[str, str]


def key_of(name: str) -> str:
    """Return under which key something is noted."""
    return RUN_ID if name == "run_id" else name.replace("_", "-")


@dataclass(frozen=True)
class IndexProperties:
    """What is noted in one version of an index, read as it is asked for.

    Attributes:
        texts: the routing blob's properties. Those that no run of this release writes are kept.
    """

    texts: Mapping[str, str] = field(default_factory=dict)

    def noting(self, **notes: Unpack[Notes]) -> "IndexProperties":
        """Return them with what a run notes; all else stays as it is."""
        return IndexProperties(
            {**self.texts, **{key_of(name): _text(value) for name, value in notes.items()}}
        )

    @property
    def run_id(self) -> str:
        """The run that published the version; empty if it is not noted."""
        return self._get("run_id")

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the declaration that the index was built by; empty if not noted."""
        return self._get("fingerprint")

    @property
    def declaration(self) -> str:
        """The declaration as JSON, see `Recorded`; empty if it is not noted."""
        return self._get("declaration")

    @property
    def column_type(self) -> str | None:
        """The type of the indexed column's elements."""
        return self.texts.get(key_of("column_type"))

    @property
    def included(self) -> tuple[int, ...]:
        """Field ids of the columns that shards keep values of."""
        return self._read("included", _FIELD_IDS, ())

    @property
    def stage_seconds(self) -> dict[str, float]:
        """How long each stage of the run took."""
        return self._read("stage_seconds", _SECONDS, {})

    @property
    def skipped(self) -> dict[str, int]:
        """How many rows are not indexed, by reason."""
        return self._read("skipped", _COUNTS, {})

    @property
    def rates(self) -> Rates:
        """How fast work went; as by default where it cannot have gone so fast."""
        rates = self._read("rates", _RATES, Rates())
        return rates if rates.is_sound else Rates()

    @property
    def drift(self) -> Drift:
        """How well centroids fit; as by default where distances cannot be so."""
        drift = self._read("drift", _DRIFT, Drift())
        return drift if drift.is_sound else Drift()

    @property
    def shard_recalls(self) -> ShardRecalls:
        """What shards found when they were first compared; none where recalls cannot be so."""
        recalls = self._read("shard_recalls", _RECALLS, ShardRecalls())
        return recalls if recalls.is_sound else ShardRecalls()

    @property
    def undone(self) -> Undone:
        """What a run was to do to whole shards, and left."""
        return self._read("undone", _UNDONE, Undone())

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What engines did on a sample."""
        return self._read("trials", _TRIALS, ())

    @property
    def history(self) -> tuple[RunRecord, ...]:
        """The records that the version carries, the newest first."""
        return self._read("history", _RECORDS, ())

    def next_file_id(self, path: str) -> int:
        """Return the id that the next new file gets by what the runs before noted; 0 if none did.

        Args:
            path: of the index file, for the error.

        Raises:
            BlobFormatError: it is no such id, and ids of files that are gone might be given again.
        """
        key = key_of("next_file_id")
        text = self.texts.get(key, "0")
        if re.fullmatch("[0-9]{1,10}", text) is None or int(text) >= MOST_FILES:
            raise BlobFormatError(
                f"{path}: property {key!r} is {text[:80]!r}, which is no file id; build the index "
                "again"
            )
        return int(text)

    def _get(self, name: str) -> str:
        return self.texts.get(key_of(name), "")

    def _read(self, name: str, kind: TypeAdapter[Noted], default: Noted) -> Noted:
        text = self.texts.get(key_of(name))
        if text is None:
            return default
        try:
            return kind.validate_json(text)
        except ValidationError:
            return default


def _text(value: object) -> str:
    """Return what is noted as text: JSON, but for text itself."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, default=_plain)


def _plain(document: BaseModel) -> dict[str, object]:
    return document.model_dump(exclude_defaults=True)
