"""The properties of a routing blob: their keys, and what runs note in them as JSON.

They are free text, which others may spoil. None of it says what an index answers, so what is not as
a run writes it counts as not noted.
"""

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from puffin_ann.errors import BlobFormatError

STAGE_SECONDS = "stage-seconds"
SKIPPED = "skipped"
FINGERPRINT = "fingerprint"
"""The declaration's fingerprint."""
COLUMN_TYPE = "column-type"
"""The type of the indexed column's elements."""
RATES = "rates"
"""`Rates` as JSON."""
NEXT_FILE_ID = "next-file-id"
"""File ids below this have been in use at some time."""
DRIFT = "drift"
"""`Drift` as JSON."""
HISTORY = "history"
"""The records as JSON, the newest first."""

MOST_FILES = 1 << 32

Count = Annotated[int, Field(ge=0, lt=1 << 63)]

_SECONDS = TypeAdapter(dict[str, FiniteFloat])
_COUNTS = TypeAdapter(dict[str, Count])

_Noted = TypeVar("_Noted")


def read_property(
    properties: Mapping[str, str], key: str, kind: TypeAdapter[_Noted], default: _Noted
) -> _Noted:
    """Return what is noted under a key; the default if nothing is, or nothing that is of a kind."""
    text = properties.get(key)
    if text is None:
        return default
    try:
        return kind.validate_json(text)
    except ValidationError:
        return default


def stage_seconds(properties: Mapping[str, str]) -> dict[str, float]:
    """Return how long each stage of the run took."""
    return read_property(properties, STAGE_SECONDS, _SECONDS, {})


def count_skipped(properties: Mapping[str, str]) -> dict[str, int]:
    """Return how many rows are not indexed, by reason."""
    return read_property(properties, SKIPPED, _COUNTS, {})


def next_file_id(properties: Mapping[str, str], path: str) -> int:
    """Return the id that the next new file gets by what the runs before noted; 0 if they did not.

    Raises:
        BlobFormatError: it is no such id, and ids of files that are gone might be given again.
    """
    text = properties.get(NEXT_FILE_ID, "0")
    if re.fullmatch("[0-9]{1,10}", text) is None or int(text) >= MOST_FILES:
        raise BlobFormatError(
            f"{path}: property {NEXT_FILE_ID!r} is {text[:80]!r}, which is no file id; build the "
            "index again"
        )
    return int(text)
