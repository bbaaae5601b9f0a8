import errno

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import ChecksumError, StoreDeniedError, StoreUnavailableError
from puffin_ann.lake.store import outages
from puffin_ann.lake.store.listing import is_folder
from puffin_ann.lake.store.objects import (
    FOLDER,
    object_exists,
    object_length,
    open_object,
    read_object,
)
from puffin_ann.lake.store.outages import patiently
from puffin_ann.settings import settings
from tests.support.servers.faulty_store import FaultyIO, broken_by

HEAD = "When reading information for key 'k' in bucket 'b': AWS Error"
URI = "s3://b/k"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(outages, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(outages, "LONGEST_WAIT_SECONDS", 0.002)
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "60")
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def soon_given_up(monkeypatch):
    """A store that goes on failing is asked again for no longer than a test may take."""
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "0.2")
    settings.cache_clear()


def client_error(status: int, code: str) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")


MISSING = [
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    NotADirectoryError(errno.ENOTDIR, "Not a directory"),
    OSError(errno.ENAMETOOLONG, "File name too long"),
    OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation: No response body."),
    OSError("AWS Error NO_SUCH_KEY during GetObject operation: The key does not exist."),
    client_error(404, "NoSuchKey"),
]
DENIED = [
    PermissionError(errno.EACCES, "Permission denied"),
    OSError(f"{HEAD} ACCESS_DENIED during HeadObject operation: No response body."),
    OSError(f"{HEAD} SIGNATURE_DOES_NOT_MATCH during HeadObject operation"),
    OSError(f"{HEAD} INVALID_ACCESS_KEY_ID during HeadObject operation"),
    OSError(f"{HEAD} UNKNOWN (HTTP status 403) during HeadObject operation"),
    client_error(403, "AccessDenied"),
]
LASTING = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(f"{HEAD} UNKNOWN (HTTP status 400) during HeadObject operation: No response body."),
    OSError(f"{HEAD} UNKNOWN (HTTP status 301) during HeadObject operation: No response body."),
    OSError(f"{HEAD} NO_SUCH_BUCKET during HeadObject operation"),
]
PASSING = [
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ESTALE, "Stale file handle"),
    TimeoutError("timed out"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    OSError(f"{HEAD} UNKNOWN (HTTP status 500) during HeadObject operation: No response body."),
    OSError(f"{HEAD} SLOW_DOWN during HeadObject operation (HTTP status 503)"),
    OSError(f"{HEAD} UNKNOWN (HTTP status 429) during HeadObject operation"),
    OSError(f"{HEAD} NETWORK_CONNECTION during HeadObject operation: curlCode: 7"),
    client_error(503, "SlowDown"),
    EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
]


@pytest.mark.parametrize("said", MISSING, ids=str)
def test_only_a_definite_answer_says_that_nothing_is_there(said):
    calls = broken_by([said] * 9)

    with pytest.raises(FileNotFoundError, match=URI):
        patiently(URI, calls)

    assert calls.made == 1


@pytest.mark.parametrize("said", DENIED, ids=str)
def test_a_store_that_refuses_access_is_told_as_that_at_once(said):
    calls = broken_by([said] * 9)

    with pytest.raises(StoreDeniedError, match=rf"refuses access to {URI}.*credentials"):
        patiently(URI, calls)

    assert calls.made == 1


@pytest.mark.parametrize("said", LASTING, ids=str)
def test_what_will_not_pass_is_an_outage_and_not_asked_for_again(said):
    calls = broken_by([said] * 9)

    with pytest.raises(StoreUnavailableError, match=f"no answer for {URI}"):
        patiently(URI, calls)

    assert calls.made == 1


@pytest.mark.parametrize("said", PASSING, ids=str)
def test_what_may_pass_is_asked_for_again(said):
    calls = broken_by([said, said])

    assert patiently(URI, calls) == "answer"
    assert calls.made == 3


@pytest.mark.parametrize("said", PASSING[::5], ids=str)
def test_what_does_not_pass_is_an_outage_after_the_time_set(soon_given_up, said):
    calls = broken_by([said] * 100_000)

    with pytest.raises(StoreUnavailableError, match=f"no answer for {URI}") as told:
        patiently(URI, calls)

    assert 1 < calls.made < 100_000
    assert told.value.exit_code == 6


def test_zero_seconds_ask_once(monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "0")
    settings.cache_clear()
    calls = broken_by([PASSING[0]] * 9)

    with pytest.raises(StoreUnavailableError):
        patiently(URI, calls)

    assert calls.made == 1


@pytest.mark.parametrize("defect", [ValueError("x"), ChecksumError("wrong bytes")], ids=str)
def test_what_is_no_word_of_a_store_passes_as_it_is(defect):
    calls = broken_by([defect])

    with pytest.raises(type(defect)) as raised:
        patiently(URI, calls)

    assert raised.value is defect


def test_lengths_of_objects_of_folders_and_of_nothing(tmp_path):
    (tmp_path / "five").write_bytes(b"12345")
    io = PyArrowFileIO()

    assert object_length(io, f"{tmp_path}/five") == 5
    assert object_length(io, f"file://{tmp_path}/none") is None
    assert object_length(io, f"{tmp_path}/five/none") is None
    assert object_length(io, str(tmp_path)) == FOLDER
    assert object_exists(io, str(tmp_path))
    assert not object_exists(io, f"{tmp_path}/none")


def test_what_stands_in_an_objects_place_is_told_from_nothing(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path, tmp_path / "loop"):
        with pytest.raises(IsADirectoryError):
            open_object(PyArrowFileIO(), str(place))
        assert is_folder(PyArrowFileIO(), str(place))
    assert not is_folder(PyArrowFileIO(), f"{tmp_path}/none")


def test_an_object_is_read_through_a_connection_that_breaks_again_and_again(tmp_path):
    data = bytes(range(256)) * 40
    (tmp_path / "object").write_bytes(data)
    io = FaultyIO(PyArrowFileIO(), fails=lambda request: request.number % 3 == 0)

    with open_object(io, f"{tmp_path}/object") as stream:
        stream.seek(100)
        middle = stream.read(1000)
        stream.seek(0)
        assert (middle, stream.read(), stream.read(1)) == (data[100:1100], data, b"")


def test_an_answer_cut_short_is_asked_for_again(tmp_path):
    (tmp_path / "object").write_bytes(b"x" * 1000)
    io = FaultyIO(PyArrowFileIO(), cuts=lambda request: request.number < 4)

    assert read_object(io, f"{tmp_path}/object") == b"x" * 1000


def test_an_answer_cut_short_for_ever_is_an_outage_and_no_damage(tmp_path, soon_given_up):
    (tmp_path / "object").write_bytes(b"x" * 1000)
    io = FaultyIO(PyArrowFileIO(), cuts=lambda request: request.kind == "read")

    with pytest.raises(StoreUnavailableError, match="500 of 1000 bytes"):
        read_object(io, f"{tmp_path}/object")


def test_whether_an_object_exists_is_not_told_while_its_store_fails(tmp_path, soon_given_up):
    io = FaultyIO(PyArrowFileIO(), fails=lambda request: True)

    with pytest.raises(StoreUnavailableError):
        object_exists(io, f"{tmp_path}/none")


def test_fsspec_that_says_of_whatever_fails_that_it_does_not_exist_is_not_believed(
    tmp_path, soon_given_up
):
    from pyiceberg.io.fsspec import FsspecFileIO

    io = FsspecFileIO({})
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    fs = io.get_fs("file")

    def info(path, **_):
        raise OSError(errno.EIO, "Input/output error")

    fs.info, original = info, fs.info
    try:
        assert not io.new_input(f"{tmp_path}/any").exists()
        with pytest.raises(StoreUnavailableError):
            object_exists(io, f"{tmp_path}/any")
    finally:
        fs.info = original
