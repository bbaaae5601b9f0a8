"""Arrays that one stage leaves for another."""

import io
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from puffin_ann.errors import StagingError
from puffin_ann.lifecycle.runtime.workspace import arrays_from_bytes, arrays_to_bytes


@dataclass(frozen=True)
class Some:
    rows: NDArray[np.uint32]
    is_new: NDArray[np.bool_]
    scale: NDArray[np.float64]


SOME = Some(np.arange(6, dtype=np.uint32).reshape(2, 3), np.zeros(0, np.bool_), np.array(0.5))


def test_arrays_come_back_as_they_were():
    found = arrays_from_bytes(Some, arrays_to_bytes(SOME))
    for name, value in vars(SOME).items():
        got = getattr(found, name)
        assert (got.dtype, got.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(got, value)


def _pickled():
    buffer = io.BytesIO()
    for value in vars(SOME).values():
        np.save(buffer, np.array([value], dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        arrays_to_bytes(SOME)[:-1],
        arrays_to_bytes(SOME)[:100],
        arrays_to_bytes(SOME) + b"\0",
        _pickled(),
        b"no arrays at all",
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(StagingError, match="staged arrays are not those of Some"):
        arrays_from_bytes(Some, data)
