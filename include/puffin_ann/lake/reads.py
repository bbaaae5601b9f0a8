"""Reading files of the table by Arrow, whose errors do not say which file they are about."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from puffin_ann.errors import DataFileError, EnvironmentProblemError


@contextmanager
def reading(path: str, what: str = "data file") -> Iterator[None]:
    """Name a Parquet file in what goes wrong while it is read.

    Raises:
        DataFileError: its bytes are not Parquet.
        EnvironmentProblemError: it is gone, or cannot be read; Arrow says that of some damage, too.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise EnvironmentProblemError(f"{what} {path} is gone from the store") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataFileError(f"{path} is not a readable Parquet file: {error}") from error
    except OSError as error:
        raise EnvironmentProblemError(f"{what} {path} cannot be read: {error}") from error
