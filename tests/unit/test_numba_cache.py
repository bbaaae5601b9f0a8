"""Compiled kernels are run: they are loaded only from where no other user can have put them."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from numba import njit

from puffin_ann import numba_cache
from puffin_ann.numba_cache import KernelFiles
from puffin_ann.settings import configure_numba

RUN = """
import sys
import numpy as np
from puffin_ann.blobs import kernels
kernel = kernels.put_varints
print(getattr(kernel._cache, "_cache_file", None) and kernel._cache._cache_file._index_path)
if "use" in sys.argv:
    out = np.zeros(10, np.uint8)
    assert kernel(np.array([1, 300]), out) == 3, out
"""


class Evil:
    """What the cache of somebody else may hold: code that is run when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (self.marker, "w"))


def run(*arguments, **variables):
    """Return where a kernel is kept, as another process sees it, and what it said."""
    free = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "PUFFIN_ANN_CACHE_DIR", "TMPDIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        env={**free, **{name: str(value) for name, value in variables.items()}},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture
def open_folder():
    """A folder in the temporary one of the machine, that all users may enter."""
    folder = Path(tempfile.mkdtemp(dir="/tmp")).resolve()
    folder.chmod(0o755)
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def planted(path: Path, marker: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(Evil(str(marker))))
    for parent in (path, *path.parents[:3]):
        parent.chmod(0o777)


@pytest.mark.parametrize("how", ["temporary", "configured", "of Numba"])
def test_kernels_that_another_user_may_have_planted_are_never_loaded(open_folder, how):
    shared, marker = open_folder / "shared", open_folder / "marker"
    place = {
        "temporary": {"PUFFIN_ANN_CACHE_DIR": "/dev/null/none", "TMPDIR": shared},
        "configured": {"PUFFIN_ANN_CACHE_DIR": shared, "TMPDIR": open_folder},
        "of Numba": {"NUMBA_CACHE_DIR": shared, "TMPDIR": open_folder},
    }[how]
    base = f"puffin-ann-{os.geteuid()}" if how == "temporary" else "."
    kept, _ = run(PUFFIN_ANN_CACHE_DIR=open_folder / "own")
    inside = Path(kept).relative_to(open_folder / "own")
    leaf = Path(*inside.parts[1:]) if how == "of Numba" else inside
    planted(shared / base / leaf, marker)
    _, said = run("use", **place)
    assert not marker.exists()
    assert "PUFFIN_ANN_CACHE_DIR" in said


@pytest.fixture
def files(tmp_path):
    kept = KernelFiles(str(tmp_path), "kernel", b"stamp")
    kept.save("key", {"machine": "code"})
    return kept


def test_what_was_kept_is_loaded_and_for_this_user_alone(files, tmp_path):
    assert files.load("key") == {"machine": "code"}
    assert files.load("other") is None
    assert KernelFiles(str(tmp_path), "kernel", b"later").load("key") is None
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("corrupt", ["loose", "link", "foreign", "cut short", "folder", "pipe"])
def test_a_file_that_cannot_be_trusted_or_read_is_as_if_it_were_not_there(
    files, tmp_path, monkeypatch, caplog, suffix, corrupt
):
    (path,) = tmp_path.glob(f"*{suffix}")
    corrupted(path, corrupt, monkeypatch)
    assert files.load("key") is None
    assert "kernel." in caplog.text


def corrupted(path: Path, how: str, monkeypatch) -> None:
    if how == "loose":
        path.chmod(0o666)
    elif how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    elif how == "foreign":
        monkeypatch.setattr(numba_cache.private_folders, "_is_trusted", lambda uid: False)
    elif how == "cut short":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
        path.mkdir() if how == "folder" else os.mkfifo(path)


def test_where_kernels_cannot_be_kept_they_are_still_compiled(monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    configure_numba()
    monkeypatch.setattr(KernelFiles, "save", full)
    monkeypatch.setattr(KernelFiles, "load", lambda *_: None)

    def kernel(value):
        return value + 1

    kernel.__module__ = "puffin_ann.ann.made_up"
    assert njit(cache=True)(kernel)(1) == 2
    assert "No space left" in caplog.text
