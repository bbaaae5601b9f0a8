import errno
import os
import threading
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import EnvironmentProblemError, StagingError, StoreDeniedError
from puffin_ann.lake.store.staging import StagedObject, Staging, local_path

SHA_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class RemoteFileIO(PyArrowFileIO):
    """A store that is not the local file system, as far as we can tell."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        (folder / "bucket").mkdir()

    def _initialize_fs(self, scheme: str, netloc: str | None = None):
        assert scheme == "s3"
        return SubTreeFileSystem(str(self._folder), LocalFileSystem())


@pytest.fixture(params=["plain", "uri"])
def staging(request: pytest.FixtureRequest, tmp_path: Path) -> Staging:
    root = f"{tmp_path}/table/metadata/_ann-staging/words/run-1"
    return Staging(PyArrowFileIO(), root if request.param == "plain" else f"file://{root}")


@pytest.mark.parametrize("torn", [b"", b"\0\0\0\0", b'{"seconds": 1', b'{"a": \0\0}'])
def test_what_a_machine_that_went_down_left_is_discarded(staging: Staging, torn: bytes) -> None:
    staging.put_new("done.json", torn)
    assert staging.discard_torn("done.json")
    assert not staging.exists("done.json")


def test_a_whole_document_is_never_discarded(staging: Staging) -> None:
    staging.put_new("done.json", b'{"seconds": 1}')
    assert not staging.discard_torn("done.json")
    assert staging.exists("done.json")


def test_nothing_that_is_staged_waits_for_the_disk(staging: Staging, monkeypatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr("os.fsync", waited.append)
    staging.put_new("plan.json", b"{}")
    staging.put("beat", b"{}")
    assert not waited


def test_what_is_put_is_read(staging: Staging) -> None:
    assert not staging.exists("plan.json")
    assert staging.put_new("plan.json", b"{}")
    assert staging.exists("plan.json")
    assert staging.read("plan.json") == b"{}"


def test_the_first_marker_wins(staging: Staging) -> None:
    assert staging.put_new("plan.json", b"first")
    assert not staging.put_new("plan.json", b"second")
    assert staging.read("plan.json") == b"first"


def test_of_many_writers_at_once_one_wins(staging: Staging) -> None:
    for attempt in range(20):
        name = f"marker-{attempt}"
        barrier = threading.Barrier(8)
        won: list[bytes] = []

        def run(data: bytes, name=name, barrier=barrier, won=won) -> None:
            barrier.wait()
            if staging.put_new(name, data):
                won.append(data)

        threads = [threading.Thread(target=run, args=(bytes([i]) * 10_000,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [staging.read(name)]


def test_a_marker_can_be_read_by_other_users(staging: Staging) -> None:
    staging.put_new("a.json", b"1")
    beside = local_path(staging.uri("b.json"))
    beside.write_bytes(b"2")
    assert local_path(staging.uri("a.json")).stat().st_mode == beside.stat().st_mode


def test_nothing_but_the_marker_is_left_in_the_folder(staging: Staging) -> None:
    staging.put_new("a.json", b"1")
    staging.put_new("a.json", b"2")
    assert [path.name for path in local_path(staging.root).iterdir()] == ["a.json"]


def test_a_missing_object_is_told_with_its_location(staging: Staging) -> None:
    with pytest.raises(StagingError, match=r"gone/object"):
        staging.read("gone", "object")


def test_an_object_goes_there_and_back_checked(staging: Staging) -> None:
    with staging.create("shards", "0", "attempt-1.bin") as out:
        out.write(b"abc")
    staged = out.staged
    assert staged == StagedObject(staging.uri("shards", "0", "attempt-1.bin"), 3, SHA_OF_ABC)
    assert staging.read_checked(staged) == b"abc"
    with staging.fetch(staged.uri) as stream:
        stream.seek(1)
        assert stream.read() == b"bc"


def test_a_stream_is_counted_and_digested(staging: Staging) -> None:
    with staging.create("big.bin") as out:
        out.write(b"a")
        out.write(memoryview(b"bc"))
        assert out.tell() == 3
    assert out.staged == StagedObject(staging.uri("big.bin"), 3, SHA_OF_ABC)


def test_a_stream_that_fails_leaves_no_object(staging: Staging) -> None:
    def write() -> None:
        with staging.create("big.bin") as out:
            out.write(b"a")
            raise RuntimeError("the build failed")

    with pytest.raises(RuntimeError):
        write()
    assert not staging.exists("big.bin")


@pytest.mark.parametrize(
    "wrong",
    [{"length": 4}, {"sha256": "0" * 64}],
)
def test_an_object_that_is_not_what_was_staged_is_refused(staging: Staging, wrong: dict) -> None:
    with staging.create("a.bin") as out:
        out.write(b"abc")
    marker = StagedObject(**{**vars(out.staged), **wrong})
    with pytest.raises(StagingError, match="its marker says"):
        staging.read_checked(marker)


@pytest.mark.parametrize("name", ["", "../up", "a//b", "a/./b", "/a"])
def test_names_stay_inside_the_folder(staging: Staging, name: str) -> None:
    with pytest.raises(StagingError, match="not a name inside"):
        staging.uri(name)


@pytest.mark.parametrize(
    "root", ["/", "/tmp", "s3://bucket", "s3://bucket/warehouse", "file:///data"]
)
def test_a_root_so_short_that_deleting_it_takes_all_is_refused(root: str) -> None:
    with pytest.raises(StagingError, match="too short"):
        Staging(PyArrowFileIO(), root)


def test_the_whole_folder_is_deleted_and_no_more(staging: Staging, tmp_path: Path) -> None:
    staging.put_new("a", b"1")
    staging.put_new("deep/er", b"1")
    beside = Path(f"{local_path(staging.root)}-other")
    beside.mkdir()
    staging.delete_tree()
    staging.delete_tree()
    assert not local_path(staging.root).exists()
    assert beside.exists()


def test_a_store_without_links_still_keeps_the_first_marker(tmp_path: Path) -> None:
    staging = Staging(RemoteFileIO(tmp_path), "s3://bucket/staging/words/run-1")
    (tmp_path / "bucket/staging/words/run-1").mkdir(parents=True)
    assert staging.put_new("a", b"first")
    assert not staging.put_new("a", b"second")
    assert staging.read("a") == b"first"
    staging.delete_tree()
    assert not staging.exists("a")


def test_a_tree_is_deleted_through_fsspec_too(tmp_path: Path) -> None:
    staging = Staging(FsspecFileIO({}), f"file://{tmp_path}/staging/words/run-1")
    staging.put_new("a", b"1")
    staging.delete_tree()
    assert not staging.exists("a")


def _writes(staging: Staging) -> None:
    with staging.create("deep", "er") as out:
        out.write(b"abc")


@pytest.mark.parametrize(
    "write",
    [
        lambda staging: staging.put_new("deep/er", b"abc"),
        lambda staging: staging.put("deep/er", b"abc"),
        _writes,
    ],
)
@pytest.mark.parametrize("above", ["deep", "."])
def test_a_file_where_a_folder_should_be_is_named(staging: Staging, write, above: str) -> None:
    place = local_path(staging.root) / above
    place.parent.mkdir(parents=True)
    place.write_bytes(b"somebody's")
    with pytest.raises(EnvironmentProblemError, match=r"deep/er cannot be written: .") as caught:
        write(staging)
    assert not isinstance(caught.value, StagingError)
    assert place.read_bytes() == b"somebody's"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_is_named_and_nothing_is_left(
    staging: Staging, monkeypatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(
        EnvironmentProblemError, match=f"plan.json cannot be written: {os.strerror(number)}"
    ):
        staging.put_new("plan.json", b"{}")
    assert list(local_path(staging.root).iterdir()) == []


def test_a_folder_that_this_user_may_not_write_to_is_named_and_what_to_do(
    staging: Staging, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(
            errno.EACCES, "Permission denied", local_path(staging.root) / "_lease-1.part"
        )

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreDeniedError) as caught:
        staging.put_new("_lease-00000001", b"{}")
    told = str(caught.value)
    assert told.startswith(f"this user may not write to {local_path(staging.root)}: Permission de")
    assert "give them permission" in told
    assert "_lease" not in told
    assert "try again" not in told
