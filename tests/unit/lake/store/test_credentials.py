"""Credentials that end: a catalog that lends some for a while, and a store that takes no others."""

import gc
import weakref
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import CatalogUnavailableError, StoreDeniedError
from puffin_ann.lake.store import credentials, s3
from puffin_ann.lake.store.credentials import is_lent, lend
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lake.store.s3 import s3_of

URI = "s3://b/k"
HOUR_MS = 3_600_000
CONFIGURED = {"uri": "http://catalog", "s3.endpoint": "http://s3"}
EXPIRED = "AWS Error UNKNOWN (HTTP status 400): ExpiredToken during GetObject operation"
BARE = "AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body."
DENIED = "AWS Error ACCESS_DENIED during HeadObject operation: No response body."


class Lakehouse:
    """A catalog that lends a session token, and a store that takes only that which is valid."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.life_ms: int | None = HOUR_MS
        self.tells_end = True
        self.lent = 0
        self.down = False
        self.says = EXPIRED
        self.asked_by: list[str] = []

    def properties(self) -> dict[str, str]:
        if self.down:
            raise CatalogUnavailableError("the catalog is silent")
        self.lent += 1
        self.end_ms = None if self.life_ms is None else self.ms + self.life_ms
        given = {**CONFIGURED, "s3.access-key-id": "a", "s3.session-token": f"token-{self.lent}"}
        if self.tells_end and self.end_ms is not None:
            given["s3.session-token-expires-at-ms"] = str(self.end_ms)
        return given

    def check(self, token: str) -> None:
        self.asked_by.append(token)
        if token != f"token-{self.lent}" or (self.end_ms is not None and self.ms >= self.end_ms):
            raise OSError(self.says)


@pytest.fixture
def lakehouse(monkeypatch) -> Lakehouse:
    made = Lakehouse()
    monkeypatch.setattr(credentials, "now_ms", lambda: made.ms)

    def connect(io: PyArrowFileIO, scheme: str, netloc: str | None) -> object:
        token = io.properties["s3.session-token"]

        def look(path: str) -> object:
            made.check(token)
            return SimpleNamespace(type=None, size=3)

        return SimpleNamespace(get_file_info=look)

    monkeypatch.setattr(PyArrowFileIO, "_initialize_fs", connect)
    return made


@pytest.fixture
def io(lakehouse) -> PyArrowFileIO:
    """The FileIO of a table that the catalog has given."""
    made = PyArrowFileIO(lakehouse.properties())
    lend(made, CONFIGURED, lakehouse.properties)
    return made


def test_a_store_is_asked_by_what_was_lent_until_shortly_before_that_ends(lakehouse, io):
    assert object_exists(io, URI)
    lakehouse.ms += HOUR_MS - credentials.EARLY_MS - 1
    assert object_exists(io, URI)
    assert (lakehouse.lent, set(lakehouse.asked_by)) == (1, {"token-1"})


def test_credentials_are_renewed_before_they_end(lakehouse, io):
    object_exists(io, URI)
    for held in range(2, 5):
        lakehouse.ms += HOUR_MS - 60_000
        assert object_exists(io, URI)
        assert lakehouse.asked_by[-1] == f"token-{held}"
    assert lakehouse.lent == 4
    assert object_exists(io, URI)  # and are not asked for again without need
    assert lakehouse.lent == 4


def test_a_life_shorter_than_the_time_ahead_is_used_by_half(lakehouse):
    lakehouse.life_ms = 60_000
    io = PyArrowFileIO(lakehouse.properties())
    lend(io, CONFIGURED, lakehouse.properties)
    object_exists(io, URI)
    assert lakehouse.lent == 1
    lakehouse.ms += 31_000
    object_exists(io, URI)
    assert lakehouse.lent == 2


@pytest.mark.parametrize("says", [EXPIRED, BARE, DENIED])
def test_credentials_whose_end_nobody_told_are_renewed_once_they_are_refused(lakehouse, says):
    lakehouse.tells_end, lakehouse.says = False, says
    io = PyArrowFileIO(lakehouse.properties())
    lend(io, CONFIGURED, lakehouse.properties)
    lakehouse.ms += HOUR_MS
    assert object_exists(io, URI)
    assert lakehouse.asked_by == ["token-1", "token-2"]


def test_new_credentials_that_are_refused_are_no_reason_to_ask_again(lakehouse, io, monkeypatch):
    lakehouse.ms += HOUR_MS - 1
    object_exists(io, URI)
    monkeypatch.setattr(lakehouse, "check", lambda _: (_ for _ in ()).throw(OSError(DENIED)))
    with pytest.raises(StoreDeniedError):
        object_exists(io, URI)
    assert lakehouse.lent == 2


def test_a_catalog_that_is_down_leaves_what_is_valid_still(lakehouse, io, caplog):
    lakehouse.down = True
    lakehouse.ms += HOUR_MS - 60_000
    assert object_exists(io, URI)
    assert "the catalog is silent" in caplog.text
    lakehouse.down = False
    lakehouse.ms += credentials.SETTLED_MS
    assert object_exists(io, URI)
    assert lakehouse.asked_by == ["token-1", "token-2"]


@pytest.mark.parametrize(
    ("given", "configured"),
    [
        ({"s3.access-key-id": "a"}, {}),
        ({"s3.session-token": "t"}, {"s3.session-token": "t"}),
    ],
)
def test_what_is_configured_or_lasts_is_not_asked_for_again(given, configured):
    io = PyArrowFileIO(given)
    lend(io, configured, lambda: pytest.fail("was asked"))
    assert not is_lent(io)
    object_exists(io, "file:///nothing/there")


def test_what_the_store_itself_does_is_asked_for_with_valid_credentials(lakehouse, io, monkeypatch):
    def client(properties):
        token = dict(properties)["s3.session-token"]

        def head_object(**_):
            try:
                lakehouse.check(token)
            except OSError:
                answer = {"Error": {"Code": "ExpiredToken"}}
                raise ClientError(answer, "HeadObject") from None
            return {"ETag": token}

        return SimpleNamespace(head_object=head_object)

    monkeypatch.setattr(s3, "_client", client)
    store = s3_of(io, URI)
    assert store.version(URI) == "token-1"
    lakehouse.ms += HOUR_MS - 60_000
    assert store.version(URI) == "token-2"
    lakehouse.end_ms = lakehouse.ms  # earlier than was told
    lakehouse.ms += credentials.SETTLED_MS
    assert store.version(URI) == "token-3"


def test_a_fileio_is_not_kept_by_what_renews_it(lakehouse):
    io = PyArrowFileIO(lakehouse.properties())
    lend(io, CONFIGURED, lakehouse.properties)
    kept = weakref.ref(io)
    del io
    gc.collect()
    assert kept() is None
