"""Where the command line begins: interrupted at any moment, it ends with one line.

Commands import for a second or two. An interrupt during that time is handled by the module being
imported, and some modules report an error of their own instead. So the interrupt is noted by a
handler that is installed before anything else of the command line is imported.
"""

import atexit
import sys

from puffin_ann.cli.interrupts import ended_by_interrupts
from puffin_ann.errors import NotInstalledError
from puffin_ann.imports.extras import needing
from puffin_ann.imports.uncollected import collect_no_more, uncollected


def run() -> None:
    """Run the command line in this process, to its end."""
    atexit.register(collect_no_more)
    with ended_by_interrupts():
        try:
            with uncollected(), needing("cli", "the command line"):
                from puffin_ann.cli.app import run as run_command

            run_command()
        except NotInstalledError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    run()
