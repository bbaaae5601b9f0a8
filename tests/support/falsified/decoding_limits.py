"""The bounds every hostile case is held against."""

import resource
import time

from puffin_ann.errors import FormatError

CPU_SECONDS = 2.0
"""Longest that a single case may compute, whatever else the machine does; honest ones take a
millisecond."""

GROWTH = 200 << 20
"""Most that the process may grow over a whole test."""


class Trial:
    """Runs cases and holds each against its bounds."""

    def __init__(self, record_property):
        self.cases = self.refused = 0
        self._record = record_property
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def run(self, decode, *arguments):
        """Return what was decoded, or None if it was refused with an error of ours."""
        self.cases += 1
        start = time.thread_time()
        try:
            value = decode(*arguments)
        except FormatError:
            self.refused += 1
            value = None
        assert time.thread_time() - start < CPU_SECONDS
        return value

    def finish(self, *, refused):
        """Check memory, and that the corrupting did reach the checks: a share must be refused."""
        self._record("hostile_cases", self.cases)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - self._before) * 1024 < GROWTH
        assert self.refused >= refused * self.cases
