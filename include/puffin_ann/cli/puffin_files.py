"""Puffin files as commands are given them: by path or URI."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from puffin_ann.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from puffin_ann.puffin.reader import PuffinReader


@contextmanager
def open_puffin(file: str) -> "Iterator[PuffinReader]":
    """Open a Puffin file.

    Raises:
        BadInputError: it is a folder.
        NotFoundError: there is none that can be opened.
        StoreUnavailableError: its store does not answer, or refuses access.
    """
    from pyiceberg.io import load_file_io

    from puffin_ann.lake.store.objects import open_object
    from puffin_ann.puffin.reader import PuffinReader

    location = file if "://" in file else str(Path(file).absolute())
    try:
        stream = open_object(load_file_io({}, location), location)
    except FileNotFoundError:
        raise NotFoundError(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise BadInputError(f"{file} is a folder, not a Puffin file") from None
    except (OSError, ValueError) as error:
        raise NotFoundError(f"{file}: cannot be opened: {error}") from None
    with stream:
        yield PuffinReader(stream, name=file)
