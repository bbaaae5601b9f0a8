"""Lines that say what a program does now."""

import sys


def heading(text: str, aside: str = "") -> None:
    """Print a line that says what happens now, in bold on a terminal."""
    line = f"\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"== {text}"
    print(f"{line} {aside}".rstrip(), flush=True)
