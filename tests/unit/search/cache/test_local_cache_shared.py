"""One small cache for several processes: what is in use stays, and nothing is ever half there."""

import fcntl
import subprocess
import sys

import pytest

from puffin_ann.search.cache.local_cache import LocalCache

HOLD = """
import sys
from pathlib import Path
from puffin_ann.search.cache.local_cache import LocalCache

cache = LocalCache(Path(sys.argv[1]), max_bytes=250)
with cache.held("theirs", lambda folder: (folder / "data").write_text("t" * 100)) as folder:
    print(folder, flush=True)
    sys.stdin.readline()
"""

QUARREL = """
import random, sys
from pathlib import Path
from puffin_ann.search.cache.local_cache import LocalCache

def fill(text):
    def write(folder):
        for number in range(3):
            (folder / str(number)).write_text(text)
    return write

random.seed(int(sys.argv[2]))
cache = LocalCache(Path(sys.argv[1]), max_bytes=700)
for _ in range(150):
    text = random.choice("abcdef") * 100
    with cache.held(text, fill(text)) as folder:
        assert {(folder / str(number)).read_text() for number in range(3)} == {text}
"""


def fill(text):
    return lambda folder: (folder / "data").write_text(text)


def test_what_another_process_holds_is_not_removed_until_it_lets_go(tmp_path):
    cache = LocalCache(tmp_path, max_bytes=250)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        theirs = tmp_path / other.stdout.readline().strip().rpartition("/")[2]
        for name in "abc":
            with cache.held(name, fill(name * 100)):
                pass
            assert (theirs / "data").read_text() == "t" * 100
        other.communicate("done\n")
    assert other.returncode == 0
    for name in "de":
        with cache.held(name, fill(name * 100)):
            pass
    assert not theirs.exists()


def test_processes_that_want_more_than_the_cache_holds_all_get_what_they_ask_for(tmp_path):
    several = [
        subprocess.Popen(
            [sys.executable, "-c", QUARREL, str(tmp_path), str(number)], stderr=subprocess.PIPE
        )
        for number in range(3)
    ]
    said = [process.communicate()[1].decode() for process in several]
    assert [process.returncode for process in several] == [0, 0, 0], said
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(("fill-", "gone-"))]
    assert left == []


def test_what_is_held_is_not_removed_for_the_rest_of_the_same_shard(tmp_path):
    cache = LocalCache(tmp_path, max_bytes=150)
    with (
        cache.held("engine", fill("e" * 100)) as engine,
        cache.held("rows", fill("r" * 100)) as rows,
    ):
        assert (engine / "data").read_text() == "e" * 100
        assert (rows / "data").read_text() == "r" * 100
    assert engine.exists()
    assert not rows.exists()


def test_what_is_larger_than_the_cache_is_searched_without_and_drives_nothing_out(tmp_path, caplog):
    cache = LocalCache(tmp_path, max_bytes=150)
    with cache.held("small", fill("s")) as small:
        pass
    with cache.held("large", fill("l" * 200)) as large:
        assert (large / "data").read_text() == "l" * 200
    assert small.exists()
    assert not large.exists()
    assert "raise PUFFIN_ANN_CACHE_MAX_BYTES, which is 150" in caplog.text


def test_what_does_not_fit_is_told_once_a_shard_whoever_opens_it_and_whatever_it_takes(
    tmp_path, caplog
):
    for size in (200, 210, 205):
        cache = LocalCache(tmp_path, max_bytes=150)
        for key in ("one", "other"):
            with cache.held(key, fill("l" * size)):
                pass
    assert [record.args[0] for record in caplog.records] == [200, 200]


def test_records_that_came_later_count_as_well(tmp_path):
    cache = LocalCache(tmp_path, max_bytes=250)
    with cache.held("old", fill("o" * 100)) as old:
        (old / "records").write_text("r" * 100)
    with cache.held("new", fill("n" * 100)):
        assert not old.exists()


@pytest.mark.parametrize("number", [37, 95, 9])
def test_where_there_are_no_locks_what_was_used_lately_is_kept(tmp_path, monkeypatch, number):
    def no_locks(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    cache = LocalCache(tmp_path, max_bytes=150)
    with (
        cache.held("engine", fill("e" * 100)) as engine,
        cache.held("rows", fill("r" * 100)) as rows,
    ):
        assert (engine / "data").read_text() == "e" * 100
        assert (rows / "data").read_text() == "r" * 100


def test_of_two_that_fill_one_key_at_once_both_end_with_one_folder(tmp_path):
    cache = LocalCache(tmp_path)

    def late(folder):
        (folder / "data").write_text("x")
        with cache.held("key", fill("x")):
            pass

    with cache.held("key", late) as folder:
        assert (folder / "data").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
