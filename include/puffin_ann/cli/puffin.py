"""Puffin files as commands are told of them: by path or URI."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from puffin_ann.errors import NotFoundError

if TYPE_CHECKING:
    from puffin_ann.puffin.reader import PuffinReader


@contextmanager
def opened(file: str) -> "Iterator[PuffinReader]":
    """Open a Puffin file; NotFoundError if there is none that can be opened."""
    from pyiceberg.io import load_file_io

    from puffin_ann.puffin.reader import PuffinReader

    location = file if "://" in file else str(Path(file).absolute())
    try:
        stream = load_file_io({}, location).new_input(location).open()
    except (OSError, ValueError) as error:
        raise NotFoundError(f"{file}: cannot be opened: {error}") from None
    with stream:
        yield PuffinReader(stream, name=file)
