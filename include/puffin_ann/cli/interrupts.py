"""Interrupts of a command: each ends it, and it ends with one line.

An interrupt is an exception, which whatever is at work when it comes may drop: a finaliser, a
callback of weak references, or a library written in C++ that tries to import another one and goes
on without. The command would run to its end, and publish. So an interrupt that is dropped before
the command has ended is raised again.

Nothing but the standard library is imported here: an interrupt may come while others are.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_AFTER = 0.05
"""Seconds until an interrupt is raised again that was dropped: what drops it is over by then."""

INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it."""

_SIGNALS = (signal.SIGINT, signal.SIGALRM)

_aside = ""


def tell_interrupted(aside: str) -> None:
    """Say from now on, beside that the command was interrupted, what it has done; "": nothing."""
    global _aside
    _aside = aside


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """End the process with one line if it is interrupted while the body is at work.

    Whatever the body raises then is taken for the interrupt, which some modules turn into an error
    of their own. A body that ended well in spite of it has ended well.
    """
    command = _Command()
    before = {}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it may be ignored
        before = {number: signal.signal(number, command.interrupt) for number in _SIGNALS}
    told_before, sys.unraisablehook = sys.unraisablehook, _tell_unraisable
    try:
        yield
    except BaseException as error:
        is_interrupted = command.end()
        is_done = isinstance(error, SystemExit) and not error.code
        if isinstance(error, KeyboardInterrupt) or (is_interrupted and not is_done):
            print("; ".join(filter(None, ("interrupted", _aside))), file=sys.stderr)
            sys.exit(INTERRUPTED)
        raise
    finally:
        command.end()
        sys.unraisablehook = told_before
        for number, handler in before.items():
            signal.signal(number, handler)


class _Command:
    """What has to end once it was interrupted."""

    def __init__(self) -> None:
        self._is_interrupted = self._has_ended = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise the interrupt; the handler of the signal, and of the timer that raises it again."""
        if number == signal.SIGALRM and self._has_ended:
            return
        self._is_interrupted = True
        raise _Interrupt(self)

    def was_dropped(self) -> None:
        """Raise the interrupt again in a moment, unless the command ends by it."""
        if not self._has_ended:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER)

    def end(self) -> bool:
        """Drop interrupts from now on; tell whether there was one."""
        self._has_ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        return self._is_interrupted


class _Interrupt(KeyboardInterrupt):
    """An interrupt that notices when nobody holds it any more, nor what came of it."""

    def __init__(self, command: _Command) -> None:
        super().__init__()
        self._command = command

    def __del__(self) -> None:
        self._command.was_dropped()


def _tell_unraisable(dropped: "sys.UnraisableHookArgs") -> None:
    """Tell what Python drops, but for interrupts, which come again."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
