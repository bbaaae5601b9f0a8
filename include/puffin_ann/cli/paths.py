"""Paths as commands are given them."""

from pathlib import Path

import typer


def named_path(text: str) -> Path:
    """Return a path that an argument or option names, by its name refused if it is empty.

    `Path("")` is the current folder, which nobody means by it: a variable of the caller's was not
    set.
    """
    return Path(named_location(text))


def named_location(text: str) -> str:
    """Return a path or URI, refused in the same way."""
    if not text:
        raise typer.BadParameter("it is empty, and should name a file or folder")
    return text
