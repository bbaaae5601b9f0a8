"""Names for runs that nobody else names: readable, and unlike those of any other process."""

import secrets
from datetime import UTC, datetime


def new_run_id(kind: str) -> str:
    """Return an id that no other run has.

    The time tells people when it was. Neither it nor a process id tells runs apart: each container
    counts its processes from 1, and two may begin within one second.
    """
    return f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"
