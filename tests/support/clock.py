"""A clock for tests of what waits: time goes on only where a test says so."""

import threading
import time
from types import SimpleNamespace

PATIENCE = 30.0
"""Seconds that a test waits for threads to notice the time; far more than they take."""


class Clock:
    """Time for a module's `time` and `threading`, for one test.

    The thread that made it never waits: where it sleeps, the time is over. Other threads wait until
    `advance` has brought the time on, which returns once they all wait again.
    """

    def __init__(self) -> None:
        self.seconds = time.time()
        self._owner = threading.current_thread()
        self._changed = threading.Condition()
        self._events: set[Event] = set()
        self._sleepers: dict[object, float] = {}

    @property
    def time(self) -> SimpleNamespace:
        """What stands for the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.seconds, sleep=self.sleep)

    @property
    def threading(self) -> SimpleNamespace:
        """What stands for the module `threading`."""
        return SimpleNamespace(Event=lambda: Event(self), Thread=threading.Thread)

    def ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(self.seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Wait, or have the time pass."""
        if threading.current_thread() is self._owner:
            self.advance(seconds)
        else:
            self._wait_until(self.seconds + seconds, threading.current_thread(), lambda: False)

    def advance(self, seconds: float, step: float = 1.0) -> None:
        """Have time pass in small steps, at each of which everybody does what is due."""
        until = self.seconds + seconds
        while self.seconds < until:
            with self._changed:
                self._all_wait()
                self.seconds = min(self.seconds + step, until)
                self._changed.notify_all()
                self._all_wait()

    def _all_wait(self) -> None:
        def is_settled() -> bool:
            waiting = self._sleepers
            return all(event in waiting for event in self._events) and all(
                until > self.seconds for until in waiting.values()
            )

        assert self._changed.wait_for(is_settled, PATIENCE), "a thread does not come to wait"

    def _wait_until(self, until: float, who: object, is_over) -> None:
        with self._changed:
            self._sleepers[who] = until
            self._changed.notify_all()
            self._changed.wait_for(lambda: is_over() or self.seconds >= until)
            del self._sleepers[who]


class Event:
    """An event that is waited for by the clock of a test."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._is_set = clock, False
        clock._events.add(self)

    def set(self) -> None:
        """End all waiting for it."""
        with self._clock._changed:
            self._is_set = True
            self._clock._events.discard(self)
            self._clock._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait for it for some seconds of the clock."""
        self._clock._wait_until(self._clock.seconds + seconds, self, lambda: self._is_set)
        return self._is_set
