"""The heartbeat of a run, by which the clean-up tells one that works from one that failed.

A stage may work for hours on one shard and write nothing. So while it does, it touches an object in
the run's staging folder now and then.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

from puffin_ann.lake.store.staging import Staging

log = logging.getLogger("puffin_ann")

SIGN = "_alive"
"""What begins with `_` is hidden from Iceberg's orphan removal."""

EVERY_SECONDS = 60.0

ALIVE_MS = 15 * 60_000
"""A run that wrote something within this time, milliseconds, is alive, however short the grace."""


@contextlib.contextmanager
def heartbeat(staging: Staging) -> Iterator[None]:
    """Touch an object of a run's staging folder every minute while the body works."""
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(EVERY_SECONDS):
            try:
                with staging.create(SIGN) as out:
                    out.write(b"\n")
            except Exception as error:  # the work itself may well go on
                log.warning("no heartbeat in %s: %s", staging.root, error)

    thread = threading.Thread(target=touch, name=f"heartbeat {staging.root}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
