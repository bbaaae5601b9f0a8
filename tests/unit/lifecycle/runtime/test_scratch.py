import errno
import os
import shutil
import stat
import tempfile

import pytest

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.lifecycle.spark.daemon_prestart import daemon_ahead
from puffin_ann.lifecycle.spark.session import DAEMON, DAEMON_MODULE


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_to_work_in_is_for_this_user_alone_and_goes_with_the_work(temporary):
    with scratch_folder("shard-3") as folder:
        assert folder.name.startswith("puffin-ann-shard-3-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "data").write_text("x")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS]
)
def test_a_disk_that_fails_or_is_full_is_named_with_what_to_set(temporary, number):
    with pytest.raises(EnvironmentProblemError, match="set TMPDIR") as told, scratch_folder("a"):
        raise OSError(number, os.strerror(number))
    assert os.strerror(number) in str(told.value)
    assert list(temporary.iterdir()) == []


def test_a_folder_that_a_cleaner_took_away_is_no_fault_of_the_table(temporary):
    def work():
        with scratch_folder("a") as folder:
            shutil.rmtree(folder)
            (folder / "data").write_text("x")

    with pytest.raises(EnvironmentProblemError, match="No such file"):
        work()


def test_what_goes_wrong_elsewhere_is_told_as_it_is(temporary):
    with pytest.raises(FileNotFoundError), scratch_folder("a"):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/table/data.parquet")


def test_where_no_folder_can_be_made_that_is_said(temporary):
    temporary.rmdir()
    with pytest.raises(EnvironmentProblemError, match="set TMPDIR"), scratch_folder("a"):
        pass


def test_spark_starts_without_a_daemon_ahead_where_no_folder_can_be_made(temporary):
    temporary.rmdir()
    with daemon_ahead({"spark.master": "local[2]", DAEMON_MODULE: DAEMON}) as added:
        assert added == {}
