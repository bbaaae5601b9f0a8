"""Arrays in files, read by several threads."""

import gc
import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import puffin_ann
from puffin_ann.array_files import load_array


@pytest.fixture
def _hasty_threads():
    """Have threads take turns and garbage be looked for as often as can be."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        for _ in range(20):
            pass


@pytest.mark.usefixtures("_hasty_threads")
def test_threads_read_headers_side_by_side(tmp_path):
    path = tmp_path / "some.npy"
    np.save(path, np.arange(10.0))
    failures = []

    def read_at(depth):
        if depth:
            return read_at(depth - 1)
        for _ in range(4000):
            Garbage()
            try:
                load_array(path)
            except SystemError as error:  # now and then, if read by numpy.load alone
                failures.append(error)
        return None

    threads = [threading.Thread(target=read_at, args=(20 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_stream_has_one_array_after_the_other():
    stream = io.BytesIO()
    for array in (np.arange(3), np.zeros((2, 0), np.float32)):
        np.save(stream, array)
    stream.seek(0)
    np.testing.assert_array_equal(load_array(stream), np.arange(3))
    assert load_array(stream).shape == (2, 0)
    with pytest.raises(ValueError, match="No data left"):
        load_array(stream)


@pytest.mark.parametrize("mapped", [False, True])
def test_an_empty_file_is_no_whole_one(mapped, tmp_path):
    (tmp_path / "some.npy").touch()
    with pytest.raises(ValueError, match="No data left"):
        load_array(tmp_path / "some.npy", mapped=mapped)


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "some.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        load_array(tmp_path / "some.npy")


def test_nothing_else_reads_them():
    package = Path(puffin_ann.__file__).parent
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "np.load(" in path.read_text()
    }
    assert users == {"array_files.py"}
