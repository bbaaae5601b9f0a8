"""Where the command line begins: interrupted at any moment, it ends without a word.

Commands import for a second or two. An interrupt during that time is handled by the module being
imported, and some modules report an error of their own instead. So the interrupt is noted by a
handler that is installed before anything else of the command line is imported.
"""

import signal
import sys
from types import FrameType

from puffin_ann.errors import NotInstalledError
from puffin_ann.extras import needing
from puffin_ann.uncollected import uncollected

INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it."""


def run() -> None:
    """Run the command line in this process, to its end."""
    is_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it may be ignored
        signal.signal(signal.SIGINT, interrupt)
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
            sys.exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    run()
