import os
import runpy
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from puffin_ann import private_folders
from puffin_ann import settings as module
from puffin_ann.errors import BadInputError, CacheUnusableError
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.settings import Settings, cache_folder, configure_numba, renew_folder, settings


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(numba_cache, "_places", None)
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def kept() -> Path | None:
    """Where this process would keep kernels that it has to compile."""
    configure_numba()
    return numba_cache._places.kept


def test_settings_of_whoever_runs_the_tests_do_not_hold_in_them_but_for_the_cache(monkeypatch):
    for name, value in {"THREADS": "1", "STORE_SECONDS": "0", "CACHE_DIR": "/kept"}.items():
        monkeypatch.setenv(f"PUFFIN_ANN_{name}", value)
    runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))
    left = {name for name in os.environ if name.startswith("PUFFIN_ANN_")} - {"PUFFIN_ANN_SIMD"}
    assert left == {"PUFFIN_ANN_CACHE_DIR"}


def test_compiled_kernels_go_into_the_cache_folder(fresh):
    assert kept().parent == fresh / "cache"


def test_kernels_are_of_the_level_that_was_asked_for(fresh, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_SIMD", "portable")
    configure_numba()
    assert numba_cache._places.level == "portable"


def test_a_users_own_choice_of_folder_is_kept(fresh, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(fresh / "mine"))
    assert kept().parent == fresh / "mine"
    assert os.environ["NUMBA_CACHE_DIR"] == str(fresh / "mine")


def test_kernels_of_changed_sources_go_elsewhere(fresh, monkeypatch):
    before, made = kept(), numba_cache._places.made
    monkeypatch.setattr(module, "_kernel_digest", lambda: "another")
    assert kept() != before
    assert numba_cache._places.made != made


def test_where_the_cache_cannot_be_written_a_temporary_folder_serves(fresh, monkeypatch):
    (fresh / "file").write_text("not a folder")
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(fresh / "file"))
    settings.cache_clear()
    assert os.access(kept(), os.W_OK)
    assert not kept().is_relative_to(fresh)


@pytest.fixture
def reached(fresh, monkeypatch):
    """As `fresh`, but with nothing above that keeps other users out."""
    monkeypatch.setattr(private_folders, "_OTHERS_ENTER", 0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(fresh / "temporary"))
    (fresh / "temporary").mkdir()
    (fresh / "temporary").chmod(0o1777)
    (fresh / "cache").mkdir()
    module._tell.cache_clear()
    return fresh.resolve()


def test_what_is_made_in_the_temporary_folder_is_for_this_user_alone(reached):
    (reached / "cache").chmod(0o500)
    (reached / "cache").rmdir()
    (reached / "cache").write_text("not a folder")
    folder = cache_folder("shards")
    assert folder == reached / "temporary" / f"puffin-ann-{os.geteuid()}" / "shards"
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_cache_that_others_may_write_to_is_not_used_and_that_is_said_once(reached, caplog):
    (reached / "cache").chmod(0o777)
    for _ in range(2):
        assert cache_folder("shards").is_relative_to(reached / "temporary")
    (told,) = caplog.messages
    assert f"chmod go-w {reached}/cache" in told
    assert "set PUFFIN_ANN_CACHE_DIR" in told
    assert "PUFFIN_ANN_CACHE_TRUSTED" in told


def test_a_cache_that_others_may_write_to_is_used_where_that_is_said_to_be_right(
    reached, monkeypatch, caplog
):
    monkeypatch.setenv("PUFFIN_ANN_CACHE_TRUSTED", "true")
    settings.cache_clear()
    (reached / "cache").chmod(0o777)
    folder = cache_folder("shards")
    assert folder == reached / "cache" / "shards"
    shutil.rmtree(reached / "cache")
    renew_folder(folder)
    assert folder.is_dir()
    assert not caplog.messages


def test_in_a_cache_open_to_all_each_user_has_a_folder(reached):
    (reached / "cache").chmod(0o1777)
    assert cache_folder("shards") == reached / "cache" / f"u{os.geteuid()}" / "shards"


def test_where_neither_folder_is_safe_both_are_named_with_what_to_do(reached, caplog):
    (reached / "cache").chmod(0o777)
    planted = reached / "temporary" / f"puffin-ann-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(CacheUnusableError, match="set PUFFIN_ANN_CACHE_DIR") as told:
        cache_folder("shards")
    assert str(planted) in str(told.value)
    assert f"{reached}/cache" in str(told.value)


NOWHERE = """
import tempfile
def nowhere(): raise FileNotFoundError(2, "No usable temporary directory found")
tempfile.gettempdir = nowhere
import numpy as np
from puffin_ann.ann.clustering.kernels_kmeans import add_up
from puffin_ann.errors import EnvironmentProblemError
sums, counts = np.zeros((1, 2)), np.zeros(1, np.int64)
add_up(np.ones((3, 2), "f4"), np.zeros(3, np.uint32), sums, counts)
assert (sums.tolist(), counts.tolist()) == ([[3.0, 3.0]], [3])
assert add_up._cache.cache_path is None
from puffin_ann.search.cache.local_cache import LocalCache
try:
    LocalCache()
except EnvironmentProblemError as error:
    print(error)
"""


def test_where_nothing_can_be_written_kernels_are_compiled_and_kept_nowhere(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    free = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    run = subprocess.run(
        [sys.executable, "-c", NOWHERE],
        capture_output=True,
        text=True,
        env={
            **free,
            "PUFFIN_ANN_CACHE_DIR": str(tmp_path / "file"),
            "PUFFIN_ANN_KERNELS_DIR": str(tmp_path / "none"),
        },
    )
    assert run.returncode == 0, run.stderr
    assert "set PUFFIN_ANN_CACHE_DIR" in run.stdout


def test_settings_are_read_from_the_environment_and_checked(monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_THREADS", "3")
    assert Settings().thread_count == 3
    monkeypatch.setenv("PUFFIN_ANN_THREADS", "-1")
    with pytest.raises(ValidationError):
        Settings()


def test_a_value_that_is_not_allowed_is_named_by_its_variable(fresh, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_SIMD", "sse")
    with pytest.raises(BadInputError, match="PUFFIN_ANN_SIMD='sse' is not allowed: it should be "):
        settings()


def test_importing_the_package_is_cheap():
    code = (
        "import sys, puffin_ann; "
        "print([m for m in ('numba', 'pyarrow', 'pyiceberg', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_empty_variable_names_no_folder(monkeypatch):
    monkeypatch.delenv("PUFFIN_ANN_CACHE_DIR", raising=False)
    default = Settings().cache_dir
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", "")
    assert Settings().cache_dir == default
