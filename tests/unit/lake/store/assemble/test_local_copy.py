"""Ranges of local files are copied whole, whether or not the kernel does it."""

import ctypes
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import EnvironmentProblemError, StagingError
from puffin_ann.lake.store.assemble import local_copy
from puffin_ann.lake.store.assemble.compose import Assembly, Names

DATA = bytes(i * 31 % 251 for i in range(5000))


def copied(folder: Path, offset: int, length: int) -> tuple[int, bytes]:
    source, target = folder / "source", folder / "target"
    source.write_bytes(DATA)
    with source.open("rb") as read, target.open("wb") as out:
        local_copy.append(b"before", out.fileno())
        done = local_copy.append_range(read.fileno(), offset, length, out.fileno())
        local_copy.append(b"after", out.fileno())
    return done, target.read_bytes()


def refuse(number: int):
    def copy_file_range(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return copy_file_range


KERNELS = {
    "copies": None,
    "copies little at a time": lambda src, dst, count, offset_src: os.sendfile(
        dst, src, offset_src, min(count, 7)
    ),
    "copies nothing": lambda *_, **__: 0,
    "knows no such call": refuse(errno.ENOSYS),
    "copies within a file system": refuse(errno.EXDEV),
    "is not asked": lambda *_, **__: pytest.fail("it was asked"),
}


def copying_by(kernel, monkeypatch):
    monkeypatch.setattr(local_copy, "_may_lie_elsewhere", lambda _: kernel != "is not asked")
    if KERNELS[kernel] is not None:
        monkeypatch.setattr(os, "copy_file_range", KERNELS[kernel])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("offset", "length"), [(0, 5000), (17, 1234), (4999, 1), (10, 0)])
def test_a_range_arrives_whole_and_in_place(kernel, offset, length, tmp_path, monkeypatch):
    monkeypatch.setattr(local_copy, "CHUNK", 100)
    copying_by(kernel, monkeypatch)
    done, data = copied(tmp_path, offset, length)
    assert done == length
    assert data == b"before" + DATA[offset : offset + length] + b"after"


@pytest.mark.parametrize("kernel", KERNELS)
def test_of_a_source_that_ends_early_it_is_said_how_much_there_was(kernel, tmp_path, monkeypatch):
    copying_by(kernel, monkeypatch)
    assert copied(tmp_path, 4000, 2000) == (1000, b"before" + DATA[4000:] + b"after")


def test_an_error_that_is_the_disk_s_is_not_taken_for_the_kernel_s(tmp_path, monkeypatch):
    monkeypatch.setattr(local_copy, "_may_lie_elsewhere", lambda _: True)
    monkeypatch.setattr(os, "copy_file_range", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        copied(tmp_path, 0, 10)


def test_what_the_kernel_cannot_copy_from_is_read(tmp_path, monkeypatch):
    """Files of /proc have no length, and are made up as they are read."""
    copying_by("copies", monkeypatch)
    with Path("/proc/self/status").open("rb") as source, (tmp_path / "out").open("wb") as out:
        done = local_copy.append_range(source.fileno(), 0, 5, out.fileno())
    assert (done, (tmp_path / "out").read_bytes()) == (5, b"Name:")


@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.ENOSYS])
def test_room_that_cannot_be_set_aside_is_done_without(number, tmp_path, monkeypatch):
    monkeypatch.setattr(local_copy, "_fallocate", lambda: number and failing(number))
    with (tmp_path / "out").open("wb") as out:
        local_copy.reserve(out.fileno(), 1 << 20)


def test_a_disk_too_full_says_so_before_anything_is_copied(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(local_copy, "_fallocate", lambda: failing(errno.ENOSPC))
    monkeypatch.setattr(local_copy, "append_range", lambda *_: pytest.fail("it was copied"))
    assembly = Assembly(PyArrowFileIO(), Names(f"file://{tmp_path}/new", "ann", "run", 1))
    assembly.object_plan.write_range(f"file://{tmp_path}/source", 0, 4000)
    with pytest.raises(EnvironmentProblemError, match=r"/new/ann-run-.* be written: No space left"):
        assembly.make()
    assert not list((tmp_path / "new").iterdir())


def test_every_byte_of_a_new_object_is_told_once(tmp_path):
    (tmp_path / "source").write_bytes(DATA)
    assembly = Assembly(PyArrowFileIO(), Names(f"file://{tmp_path}/new", "ann", "run", 1))
    assembly.object_plan.write(b"PFA1")
    assembly.object_plan.write_range(f"file://{tmp_path}/source", 0, 4000)
    told: list[int] = []
    assembly.make(told.append)
    assert told == [4, 4000]


def failing(number: int):
    def fallocate(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    return fallocate


def test_room_is_set_aside_for_the_whole_file(tmp_path):
    with (tmp_path / "out").open("wb") as out:
        local_copy.reserve(out.fileno(), 1 << 20)
    assert (tmp_path / "out").stat().st_blocks * 512 >= 1 << 20


PIECES = st.lists(
    st.binary(min_size=1, max_size=20)
    | st.tuples(st.integers(0, 3), st.integers(0, 4999), st.integers(0, 600)),
    max_size=12,
)


@given(PIECES)
def test_an_object_is_assembled_of_bytes_and_ranges_in_order(tmp_path_factory, pieces):
    folder = tmp_path_factory.mktemp("assembled")
    assembly = Assembly(PyArrowFileIO(), Names(f"file://{folder}/new", "ann", "run", 1))
    expected = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            assembly.object_plan.write(piece)
            expected += piece
        else:
            number, offset, length = piece
            source = folder / f"source-{number}"
            source.write_bytes(bytes(255 - byte for byte in DATA) if number % 2 else DATA)
            kept = min(length, 5000 - offset)
            assembly.object_plan.write_range(f"file://{source}", offset, kept)
            expected += source.read_bytes()[offset : offset + kept]
    path = assembly.make()
    assert Path(path.removeprefix("file://")).read_bytes() == expected


def test_an_object_whose_source_is_too_short_leaves_nothing_behind(tmp_path):
    (tmp_path / "source").write_bytes(DATA)
    assembly = Assembly(PyArrowFileIO(), Names(f"file://{tmp_path}/new", "ann", "run", 1))
    assembly.object_plan.write(b"head")
    assembly.object_plan.write_range(f"file://{tmp_path}/source", 4000, 2000)
    with pytest.raises(StagingError, match="ends 1000 bytes too early"):
        assembly.make()
    assert not list((tmp_path / "new").iterdir())
