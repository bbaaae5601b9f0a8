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

from puffin_ann.errors import BadInputError
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.kernel_cache.kernel_files import RUNTIME, SUFFIX
from puffin_ann.kernel_cache.kernel_folders import Places
from puffin_ann.kernel_cache.simd_levels import common_processor
from puffin_ann.settings import simd_level
from tests.support.params import long_but_first

RUN = """
import sys
import numpy as np
from puffin_ann.blobs.encoding import kernels
kernel = kernels.put_varints
if "use" in sys.argv:
    out = np.zeros(10, np.uint8)
    assert kernel(np.array([1, 300]), out) == 3, out
print(sum(kernel.stats.cache_misses.values()))
"""


class Evil:
    """What the cache of somebody else may hold: code that is run when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (self.marker, "w"))


def run(*arguments, **variables):
    """Return how many kernels another process compiled, and what it said."""
    free = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "PUFFIN_ANN_CACHE_DIR", "TMPDIR")
    }
    none = {"PUFFIN_ANN_KERNELS_DIR": "/dev/null/none"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        env={**free, **none, **{name: str(value) for name, value in variables.items()}},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def the_kernel(folder: Path) -> Path:
    (file,) = folder.glob(f"*/*/blobs.encoding.kernels.put_varints-*{SUFFIX}")
    return file


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


@pytest.mark.parametrize("how", long_but_first(["temporary", "configured", "of Numba"]))
def test_kernels_that_another_user_may_have_planted_are_never_loaded(open_folder, how):
    shared, marker = open_folder / "shared", open_folder / "marker"
    place = {
        "temporary": {"PUFFIN_ANN_CACHE_DIR": "/dev/null/none", "TMPDIR": shared},
        "configured": {"PUFFIN_ANN_CACHE_DIR": shared, "TMPDIR": open_folder},
        "of Numba": {"NUMBA_CACHE_DIR": shared, "TMPDIR": open_folder},
    }[how]
    base = f"puffin-ann-{os.geteuid()}" if how == "temporary" else "."
    run("use", PUFFIN_ANN_CACHE_DIR=open_folder / "own")
    file = the_kernel(open_folder / "own").relative_to(open_folder / "own")
    planted(shared / base / file, marker)
    compiled, said = run("use", **place)
    assert compiled == 1
    assert not marker.exists()
    assert "PUFFIN_ANN_CACHE_DIR" in said


@pytest.fixture
def made(open_folder):
    """A folder of kernels as they come with an installation, which all users may read."""
    folder = open_folder / "made"
    run("use", NUMBA_CACHE_DIR=folder, PUFFIN_ANN_CACHE_TRUSTED="true")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_kernels_of_the_installation_are_used_where_nothing_can_be_written(made, tmp_path):
    elsewhere = {"PUFFIN_ANN_CACHE_DIR": "/dev/null/none", "TMPDIR": "/dev/null/none"}
    assert run("use", PUFFIN_ANN_KERNELS_DIR=made, **elsewhere)[0] == 0
    kept = tmp_path / "kept"
    assert run("use", PUFFIN_ANN_KERNELS_DIR=made, PUFFIN_ANN_CACHE_DIR=kept) == (0, "")
    assert not list(kept.rglob(f"*{SUFFIX}"))


@pytest.mark.parametrize("corrupt", [pytest.param("folder", marks=pytest.mark.long), "file"])
def test_kernels_of_the_installation_that_others_may_write_to_are_not_used(made, tmp_path, corrupt):
    file = the_kernel(made)
    (file if corrupt == "file" else file.parent).chmod(0o777)
    kept = {"PUFFIN_ANN_CACHE_DIR": tmp_path / "kept"}
    compiled, said = run("use", PUFFIN_ANN_KERNELS_DIR=made, **kept)
    assert compiled == 1
    assert str(file.parent) in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to its group")
@pytest.mark.parametrize("group", [0, pytest.param(65534, marks=pytest.mark.long)])
def test_kernels_that_a_group_may_write_to_are_used_if_it_is_roots(made, tmp_path, group):
    """Images let that group write, so that any user may run them."""
    for path in (the_kernel(made).parent, the_kernel(made)):
        os.chown(path, 0, group)
        path.chmod(path.stat().st_mode | 0o020)
    compiled, _ = run("use", PUFFIN_ANN_KERNELS_DIR=made, PUFFIN_ANN_CACHE_DIR=tmp_path / "kept")
    assert compiled == (0 if group == 0 else 1)


def test_kernels_made_for_all_processors_of_a_level_serve_this_one(tmp_path):
    common, made = common_processor(simd_level()), tmp_path / "made"
    run(
        "use",
        NUMBA_CPU_NAME=common.name,
        NUMBA_CPU_FEATURES=common.flags,
        NUMBA_CACHE_DIR=made,
        PUFFIN_ANN_CACHE_TRUSTED="true",
    )
    kept = {"PUFFIN_ANN_CACHE_DIR": tmp_path / "kept"}
    assert run("use", PUFFIN_ANN_KERNELS_DIR=made, **kept) == (0, "")


def test_a_processor_of_another_level_compiles_once_and_says_so(made, tmp_path):
    other = {
        "PUFFIN_ANN_KERNELS_DIR": made,
        "PUFFIN_ANN_CACHE_DIR": tmp_path / "kept",
        "PUFFIN_ANN_SIMD": "portable" if simd_level() != "portable" else "avx2",
    }
    compiled, said = run("use", **other)
    assert compiled == 1
    assert said.count("compiled for this processor") == 1
    assert str(tmp_path / "kept") in said
    assert run("use", **other) == (0, "")


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """A function that compiles a kernel as if it were one of this package, kept in a folder."""
    places = Places(tmp_path / "made", tmp_path / "kept", False, "portable")
    monkeypatch.setattr(numba_cache, "_places", places)
    monkeypatch.setattr(numba_cache.Dispatcher, "enable_caching", numba_cache._enable)

    def kernel(value):
        return value + 1

    kernel.__module__ = "puffin_ann.ann.made_up"
    yield lambda: njit(cache=True)(kernel)
    numba_cache.kernels[:] = [
        cached for cached in numba_cache.kernels if cached.py_func is not kernel
    ]


@pytest.mark.parametrize("name", ["*put_varints*", RUNTIME])
def test_damaged_machine_code_is_compiled_again(tmp_path, name):
    kept = {"PUFFIN_ANN_CACHE_DIR": tmp_path}
    run("use", **kept)
    (file,) = tmp_path.rglob(name)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    file.write_bytes(data)
    compiled, said = run("use", **kept)
    assert f"{file} is not used" in said
    assert compiled == (name != RUNTIME)
    assert run("use", **kept) == (0, "")


def test_a_folder_of_kernels_that_is_not_there_is_told_where_they_are_compiled(tmp_path):
    compiled, said = run("use", NUMBA_CACHE_DIR=tmp_path, PUFFIN_ANN_KERNELS_DIR="/nope")
    assert (compiled, "there is no folder /nope, which PUFFIN_ANN_KERNELS_DIR na" in said) == (
        1,
        True,
    )
    (tmp_path / "made").mkdir()
    compiled, said = run(
        "use", NUMBA_CACHE_DIR=tmp_path / "2", PUFFIN_ANN_KERNELS_DIR=tmp_path / "made"
    )
    assert (compiled, "kernels are compiled" in said, "no folder" in said) == (1, True, False)


def test_where_kernels_cannot_be_kept_they_are_still_compiled(made_up, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba_cache, "save", full)
    assert made_up()(1) == 2
    assert "No space left" in caplog.text


def test_kernels_that_two_processes_compile_at_once_do_not_take_each_others_place(made_up):
    """Neither knew of the other's when it began: no list of files is written anew."""
    one, other = made_up(), made_up()
    assert (one(1), other(1.5)) == (2, 2.5)
    again = made_up()
    assert (again(1), again(1.5)) == (2, 2.5)
    assert not again.stats.cache_misses
    again.recompile()
    assert again.stats.cache_misses


@pytest.mark.parametrize(
    "command",
    [
        ("size", "--rows", "1e6", "--dim", "64", "--algorithm", "ivf_pq", "--vectors", "none"),
        ("compile", "--to", "kernels"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_needs_kernels_refuses_to_go_without_in_one_line(tmp_path, command):
    done = subprocess.run(
        [sys.executable, "-m", "puffin_ann.cli.main", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert (done.returncode, done.stdout) == (BadInputError.exit_code, "")
    assert len(done.stderr.splitlines()) == 1
    assert "NUMBA_DISABLE_JIT=1 is not allowed" in done.stderr
    assert "unset it" in done.stderr
