"""Where the command line begins: interrupted at any moment, it ends with one line.

Commands import for a second or two. An interrupt during that time is handled by the module being
imported, and some modules report an error of their own instead. So the interrupt is noted by a
handler that is installed before anything else of the command line is imported.
"""

import atexit
import signal
import sys
import threading
from types import FrameType

from puffin_ann.errors import NotInstalledError
from puffin_ann.imports.extras import needing
from puffin_ann.imports.uncollected import collect_no_more, uncollected

AGAIN_AFTER = 0.05
"""Seconds until an interrupt is raised again that came where Python drops exceptions."""

INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it."""


def run() -> None:
    """Run the command line in this process, to its end."""
    atexit.register(collect_no_more)
    is_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it may be ignored
        signal.signal(signal.SIGINT, interrupt)
    told_before, sys.unraisablehook = sys.unraisablehook, _raise_again
    try:
        with uncollected(), needing("cli", "the command line"):
            from puffin_ann.cli.app import run as run_command

        run_command()
    except NotInstalledError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BaseException as error:
        is_done = isinstance(error, SystemExit) and not error.code
        if isinstance(error, KeyboardInterrupt) or (is_interrupted and not is_done):
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        raise
    finally:
        sys.unraisablehook = told_before


def _raise_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Interrupt anew where an interrupt came in a finaliser, or in a callback of weak references.

    Python tells of what is raised there and goes on; the command would run to its end.
    """
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident  # a signal to it ends what it waits in, too
        again = threading.Timer(AGAIN_AFTER, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(dropped)


if __name__ == "__main__":
    run()
