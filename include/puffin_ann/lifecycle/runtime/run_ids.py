"""Names for runs that nobody else names: readable, and unlike those of any other process."""

import hashlib
import re
import secrets
from datetime import UTC, datetime


def new_run_id(kind: str) -> str:
    """Return an id that no other run has.

    The time tells people when it was. Neither it nor a process id tells runs apart: each container
    counts its processes from 1, and two may begin within one second.
    """
    return f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"


def safe_run_id(run_id: str) -> str:
    """Return a run id that can be part of a path: readable, and different for different runs."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip("-.")[:60]
    if readable == run_id:
        return readable
    return f"{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"
