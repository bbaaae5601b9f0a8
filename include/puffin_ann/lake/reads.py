"""Reading files of the table by others' readers, whose errors do not say which file they mean."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from puffin_ann.errors import DataFileError, EnvironmentProblemError, PuffinAnnError
from puffin_ann.redaction import shown_cause

PARQUET = (pa.ArrowException, UnicodeDecodeError)
"""What Arrow raises of bytes that are not Parquet; of some, an OSError like any other."""

AVRO = (Exception,)
"""What PyIceberg raises of bytes that are not Avro: whatever its decoders trip over. One of them is
EOFError, which the command line would take for a person who gave up."""


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
        EnvironmentProblemError: it is gone, or cannot be read.
    """
    try:
        yield
    except PuffinAnnError:
        raise
    except FileNotFoundError as error:
        raise EnvironmentProblemError(f"{what} {path} is gone from the store") from shown_cause(
            error
        )
    except OSError as error:
        raise EnvironmentProblemError(f"{what} {path} cannot be read: {error}") from shown_cause(
            error
        )
    except damage as error:
        said = str(error) or type(error).__name__
        raise DataFileError(f"{path} is not a readable {form}: {said}") from shown_cause(error)
