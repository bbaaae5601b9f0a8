"""Documents as Airflow Variables: every API server finds them, and no disk is shared."""

import logging
from hashlib import sha256

from airflow.sdk import Variable
from pydantic import ValidationError

from puffin_ann.airflow.state.document import SCHEMA, StateDocument

log = logging.getLogger("airflow.task")

PREFIX = "puffin_ann.state."
DECLARED_MS = 3600 * 1000
"""For so long after somebody who declares an index looked at it, it counts as declared."""

LONGEST_KEY = 250
DESCRIPTION = "How a vector index stands; written by puffin-ann, for its page."


def key_of(table: str, index: str) -> str:
    """Return the key of an index's Variable; an index is known by its table and its name."""
    key = f"{PREFIX}{index}@{table}"
    if len(key) <= LONGEST_KEY:
        return key
    return f"{PREFIX}{sha256(key.encode()).hexdigest()}"


def load(key: str) -> StateDocument | None:
    """Return a document, in a task; None where there is none that can be read."""
    text = Variable.get(key, default=None)
    return None if text is None else parse(text)


def save(document: StateDocument) -> None:
    """Keep a document, in a task."""
    key = key_of(document.table, document.index)
    Variable.set(key, document.after(load(key)).as_text(), description=DESCRIPTION)


def parse(text: str) -> StateDocument | None:
    """Return a document from its JSON; None of another schema, or of what somebody else wrote."""
    try:
        found = StateDocument.model_validate_json(text)
    except ValidationError:
        return None
    return found if found.schema_version == SCHEMA else None


def save_undeclared(document: StateDocument) -> bool:
    """Keep the document of an index that nothing here declares, unless others do declare it."""
    known = load(key_of(document.table, document.index))
    declared = known if known and known.outcome != "orphaned" else None
    if declared and document.looked_ms - declared.looked_ms < DECLARED_MS:
        return False
    save(document)
    return True
