"""Reading files of the table by others' readers, whose errors do not say which file they mean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import (
    DataFileError,
    EnvironmentProblemError,
    ObjectMissingError,
    OutputLimitError,
    PuffinAnnError,
)
from puffin_ann.lake.read.parquet_streams import StreamedParquetFile
from puffin_ann.lake.store.objects import locating, open_object
from puffin_ann.lake.store.outages import (
    is_missing,
    is_of_a_store,
    is_of_transport,
    patiently,
    translate,
)
from puffin_ann.redaction import shown_cause

PARQUET = (pa.ArrowException, UnicodeDecodeError)
"""What Arrow raises of bytes that are not Parquet; of some, an OSError like any other."""

AVRO = (Exception,)
"""What PyIceberg raises of bytes that are not Avro: whatever its decoders trip over. One of them is
EOFError, which the command line would take for a person who gave up."""


_T = TypeVar("_T")


@contextmanager
def reading(
    path: str,
    what: str = "data file",
    *,
    form: str = "Parquet file",
    damage: tuple[type[Exception], ...] = PARQUET,
) -> Iterator[None]:
    """Name a file in what goes wrong while it is read.

    Args:
        path: its location.
        what: it is to the table.
        form: it should have.
        damage: errors that mean that it has not.

    Raises:
        DataFileError: it has not.
        EnvironmentProblemError: it is gone, or is not a file.
        StoreUnavailableError: its store does not answer, or refuses access.
    """
    try:
        yield
    except ObjectMissingError as error:
        raise _unread(error, f"{what} {path}") from shown_cause(error)
    except OutputLimitError as error:
        raise DataFileError(f"{path} is not a readable {form}: {error}") from shown_cause(error)
    except PuffinAnnError:
        raise
    except Exception as error:
        if is_of_a_store(error) and not _is_of_a_decoder(error):
            raise _unread(error, f"{what} {path}") from shown_cause(error)
        if isinstance(error, (OSError, *damage)):
            said = str(error) or type(error).__name__
            raise DataFileError(f"{path} is not a readable {form}: {said}") from shown_cause(error)
        raise


def patiently_reading(path: str, ask: Callable[[], _T], what: str = "data file") -> _T:
    """Return what is read of a Parquet file; where its store fails, it is read again.

    Raises as `reading` does.
    """

    def once() -> _T:
        try:
            return ask()
        except OSError as error:
            if _is_of_a_decoder(error):
                with reading(path, what):  # the same bytes would be wrong again
                    raise
            raise

    with reading(path, what):
        return patiently(path, once)


def open_parquet(io: FileIO, path: str, what: str = "data file") -> pq.ParquetFile:
    """Open a Parquet file, to read any number of row groups; close it, or use it as a context.

    Raises as `reading` does.
    """
    return patiently_reading(path, lambda: _opened(io, path), what)


def _opened(io: FileIO, path: str) -> pq.ParquetFile:
    """Open a file by Arrow itself where it can, without a thread of Python."""
    if not isinstance(io, PyArrowFileIO):
        return StreamedParquetFile(cast(BinaryIO, open_object(io, path)))
    with locating(path):
        stream = io.new_input(path).open()
    # Column chunks that are near each other in a row group come in one request.
    return pq.ParquetFile(stream, pre_buffer=True)


def _is_of_a_decoder(error: BaseException) -> bool:
    return isinstance(error, OSError) and not is_of_transport(error)


def _unread(error: Exception, what: str) -> EnvironmentProblemError:
    if is_missing(error):
        return ObjectMissingError(f"{what} is gone from the store")
    told = translate(error, what)
    if isinstance(told, EnvironmentProblemError):
        return told
    return EnvironmentProblemError(f"{what} cannot be read: {error}")
