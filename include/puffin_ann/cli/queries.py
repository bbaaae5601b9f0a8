"""Query vectors from files, of which nothing is trusted."""

import json
import warnings
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from puffin_ann.array_files import load_array
from puffin_ann.errors import QueryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"

_UNREADABLE = (ValueError, TypeError, OverflowError, SyntaxError, TokenError)
"""What NumPy raises; headers of arrays are Python's literals, and fail as those do."""

_OF_FILES = {
    FileNotFoundError: "there is no such file",
    IsADirectoryError: "it is a folder",
    PermissionError: "this user may not",
}


def vectors_of_file(path: Path) -> "NDArray[np.float32]":
    """Return the query vectors of a file, (q, dimension) float32 with q of at least 1.

    Args:
        path: an array of one or two axes in NumPy's format, or lists of numbers in JSON.

    Raises:
        QueryError: The file cannot be read, or holds anything but real numbers within float32.
    """
    import numpy as np

    if path.suffix not in (".npy", ".json"):
        raise QueryError(f"{path}: query files end in .npy or .json")
    try:
        loaded = _array_of(path) if path.suffix == ".npy" else _numbers_of(path)
    except QueryError as error:
        raise QueryError(f"{path}: {error}") from None
    except RecursionError:
        raise QueryError(f"{path}: lists are nested too deeply to be vectors") from None
    except MemoryError:
        raise QueryError(f"{path}: says it holds more numbers than fit into memory") from None
    except OSError as error:
        why = _OF_FILES.get(type(error), error.strerror)
        raise QueryError(f"{path}: cannot be read: {why}") from None
    except _UNREADABLE:
        raise QueryError(
            f"{path}: cannot be read as an array of NumPy's; write numbers alone, by numpy.save"
        ) from None
    if loaded.ndim not in (1, 2) or loaded.dtype.kind not in "fiu":
        raise QueryError(
            f"{path}: holds {loaded.dtype} of shape {loaded.shape}, not vectors: "
            "one list of real numbers for each query"
        )
    if not loaded.size:
        raise QueryError(f"{path}: holds no query vector (shape {loaded.shape})")
    with np.errstate(over="ignore"):
        vectors = np.atleast_2d(loaded).astype(np.float32)
    beyond = np.isinf(vectors) & np.isfinite(np.atleast_2d(loaded))
    if beyond.any():
        row = int(np.flatnonzero(beyond.any(axis=1))[0])
        raise QueryError(f"{path}: query {row} holds a number beyond float32, 3.4e38; scale it")
    return vectors


def _array_of(path: Path) -> "NDArray[Any]":

    # By its first bytes alone NumPy would take an archive or a pickle for what is asked for.
    with path.open("rb") as source:
        if source.read(len(_MAGIC)) != _MAGIC:
            raise QueryError("it is no .npy file; write it by numpy.save")
        source.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers that Python 2 wrote are read all the same
            loaded: NDArray[Any] = load_array(source)
    return loaded


def _numbers_of(path: Path) -> "NDArray[Any]":
    import numpy as np

    from puffin_ann.search.questions.queries import require_numbers, why_uneven

    try:
        lists = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        told = f"line {error.lineno}, column {error.colno}"
        raise QueryError(f"cannot be read as JSON from {told} on") from None
    except UnicodeDecodeError:
        raise QueryError("cannot be read as JSON: it is not text in UTF-8") from None
    if not isinstance(lists, list):
        raise QueryError("holds no list, and so not vectors: one list of numbers for each query")
    require_numbers(lists)
    if why := why_uneven(lists):
        raise QueryError(why)
    return np.array(lists)
