"""Make the file that is published, and tell meanwhile how much of it is there."""

from threading import Lock

from puffin_ann.lake.store.assemble.compose import Assembly
from puffin_ann.lifecycle.runtime.progress import Size, metering


def make_file(assembly: Assembly) -> str:
    """Make the object of an assembly, and return its location; raises as `Assembly.make` does."""
    length = assembly.object_plan.length
    lock, written = Lock(), 0

    with metering("assemble the file", size=Size(bytes=[length])) as meter:
        report = meter.report_of(0)

        def told(count: int) -> None:
            nonlocal written
            with lock:
                written += count
                report(written / max(1, length))

        return assembly.make(told)
