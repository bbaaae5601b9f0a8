"""What the DAGs of an index are called: ids and tags, within the limits that Airflow sets."""

import re
from typing import Literal

from puffin_ann.declaration import IndexDeclaration

Kind = Literal["build", "refresh", "maintain", "evaluate"]
"""What the runs of a DAG do."""

EXPECT, APPROVE = "expect_cost", "approve"
"""Tasks of a build that a person may have to approve."""

REASON = "reason"
"""The XCom in which the task `plan` says what its run does, and why; the page shows it."""

WHY_FAILED = "why_failed"
"""The XCom in which a task that failed says why; the page shows it."""

WATCH_PROBLEM = "problem"
"""What the watcher of a table keeps with its Asset: why it cannot look; empty where it can."""

LONGEST_TAG, LONGEST_ID = 100, 240
"""Characters. Airflow refuses longer tags, and ids that are not much longer."""

NOT_IN_IDS = re.compile(r"[^\w.-]")
"""What Airflow refuses in an id."""


def dag_id_of(kind: Kind, name: str) -> str:
    """Return the id of the DAG of an index, or of a file that declares none, whatever its name."""
    return f"ann_{kind}_{NOT_IN_IDS.sub('_', name)}"[:LONGEST_ID]


def tags_of(kind: Kind, declaration: IndexDeclaration) -> list[str]:
    """Return the tags of an index's DAG."""
    return ["puffin-ann", kind, declaration.table[:LONGEST_TAG]]
