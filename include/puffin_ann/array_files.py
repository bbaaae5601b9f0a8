"""Read `.npy` files, from whichever thread.

NumPy reads their header as Python reads source text. CPython 3.11 counts how deep that goes for all
threads together: where two read at once, it now and then raises `SystemError: AST constructor
recursion depth mismatch`.
"""

import threading
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_one_at_a_time = threading.Lock()


def load_array(source: Path | BinaryIO, *, mapped: bool = False) -> NDArray[Any]:
    """Return the array of a `.npy` file, or the next one of a stream of them.

    Args:
        source: of arrays that are not pickled.
        mapped: map the file, which is not to be empty, read-only.

    Raises:
        OSError, ValueError: there is none, or no whole one.
    """
    with _one_at_a_time:
        try:
            array: NDArray[Any] = np.load(
                source, mmap_mode="r" if mapped else None, allow_pickle=False
            )
        except (OSError, ValueError, MemoryError):
            raise
        except Exception as error:  # an empty file, or whatever reading a damaged header trips over
            raise ValueError(f"{type(error).__name__}: {error}") from None
    return array
