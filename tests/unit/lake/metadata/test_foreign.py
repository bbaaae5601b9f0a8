"""Of random histories of a table, which metadata files are its own, merely old, or foreign."""

import io
import json
import uuid
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.errors import StoreUnavailableError
from puffin_ann.lake.metadata import files
from puffin_ann.lake.metadata import foreign as foreign_metadata
from puffin_ann.lake.metadata.files import location_problem
from puffin_ann.lake.metadata.foreign import Reach, find_metadata_in_reach
from puffin_ann.lake.store.listing import StoredObject

HOME = "s3://b/t"
UUID = str(uuid.uuid4())
HOUR = 3_600_000


class Folder:
    """The metadata folder of a table, in memory; every commit takes two hours."""

    def __init__(self, log_length: int = 5) -> None:
        self.files: dict[str, bytes] = {}
        self.log_length, self.now_ms, self.reads = log_length, 0, 0

    def commit(self, before: str = "", table_uuid: str = UUID, names: str = "") -> str:
        """Write the metadata file that follows another one; returns its location."""
        self.now_ms += 2 * HOUR
        log = []
        if before:
            document = json.loads(self.files[before])
            entry = {"timestamp-ms": document["last-updated-ms"], "metadata-file": before}
            log = [*document["metadata-log"], entry][-self.log_length :]
        path = f"{HOME}/metadata/{len(self.files):05d}-{uuid.uuid4()}.metadata.json"
        document = {
            "table-uuid": table_uuid,
            "last-updated-ms": self.now_ms,
            "metadata-log": log,
            "statistics": [{"snapshot-id": 1, "statistics-path": names}] if names else [],
        }
        self.files[path] = json.dumps(document).encode()
        return path

    def look(self, current: str, *, since_ms: int | None = None, **options) -> Reach:
        document = json.loads(self.files[current])
        log = [
            SimpleNamespace(
                timestamp_ms=entry["timestamp-ms"], metadata_file=entry["metadata-file"]
            )
            for entry in document["metadata-log"]
        ]
        table = SimpleNamespace(
            io=None,
            location=lambda: HOME,
            name=lambda: ("demo", "t"),
            catalog=SimpleNamespace(name="test"),
            properties=options.pop("properties", {}),
            metadata_location=current,
            metadata=SimpleNamespace(
                metadata_log=log,
                table_uuid=uuid.UUID(UUID),
                last_updated_ms=document["last-updated-ms"],
            ),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(foreign_metadata, "reload_table", lambda table: table)
            patch.setattr(foreign_metadata, "list_objects", self._listed)
            patch.setattr(files, "open_object", self._open)
            since = self.now_ms if since_ms is None else since_ms
            return find_metadata_in_reach(table, since_ms=since, **options)

    def _listed(self, _, folder):
        assert folder == f"{HOME}/metadata"
        return [StoredObject(uri, len(data), 0) for uri, data in self.files.items()]

    def _open(self, _, uri):
        self.reads += 1
        if uri not in self.files:
            raise FileNotFoundError(uri)
        if self.files[uri] == b"silent":
            raise StoreUnavailableError(f"no answer for {uri}")
        return io.BytesIO(self.files[uri])


def history(folder: Folder, count: int, before: str = "") -> list[str]:
    made = []
    for _ in range(count):
        before = folder.commit(before)
        made.append(before)
    return made


def foreign(reach: Reach) -> dict[str, str]:
    return {file.location: file.kind for file in reach.foreign}


@settings(max_examples=60)
@given(
    own=st.integers(1, 60),
    log_length=st.integers(1, 8),
    forks=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 4)), max_size=4),
)
def test_in_any_history_own_versions_are_own_and_other_registrations_foreign(
    own, log_length, forks
):
    folder = Folder(log_length)
    line = [folder.commit()]
    others: list[list[str]] = []
    pending = {pick % own: length for pick, length in forks}
    for number in range(own):
        if number in pending:
            others.append(history(folder, pending[number], line[-1]))
        line.append(folder.commit(line[-1]))

    found = foreign(folder.look(line[-1]))

    assert found.keys().isdisjoint(line)
    logged = json.loads(folder.files[line[-1]])["metadata-log"]
    for fork in others:
        newest = json.loads(folder.files[fork[-1]])["last-updated-ms"]
        if len(fork) > 1:
            assert {found[path] for path in fork} == {"other history"}
        elif newest >= logged[0]["timestamp-ms"]:
            assert found[fork[0]] == "single commit"
        else:
            assert fork[0] not in found


def test_with_the_files_of_the_log_alone_nothing_is_read():
    folder = Folder(log_length=100)
    line = history(folder, 80)
    assert foreign(folder.look(line[-1])) == {}
    assert folder.reads == 0


def test_a_long_history_is_followed_back_by_few_files():
    folder = Folder(log_length=100)
    line = history(folder, 1000)
    assert foreign(folder.look(line[-1])) == {}
    assert folder.reads < 15


def test_where_earlier_versions_are_gone_what_is_older_than_the_log_is_the_tables_own():
    folder = Folder(log_length=5)
    line = history(folder, 60)
    for path in line[40:55]:
        del folder.files[path]
    reach = folder.look(line[-1])
    assert foreign(reach) == {}
    assert set(reach.older) == set(line[:40])


def test_a_stray_counts_for_as_long_as_the_grace_however_short_the_log_is():
    folder = Folder(log_length=2)
    line = history(folder, 5)
    (stray,) = history(folder, 1, line[-1])
    line += history(folder, 30, line[-1])
    assert foreign(folder.look(line[-1])) == {}
    assert foreign(folder.look(line[-1], since_ms=0)) == {stray: "single commit"}


def test_another_table_is_foreign_however_old_it_is():
    folder = Folder()
    theirs = folder.commit(table_uuid=str(uuid.uuid4()), names=f"{HOME}/metadata/ann-1.puffin")
    line = history(folder, 50)
    (found,) = folder.look(line[-1]).foreign
    assert (found.location, found.kind) == (theirs, "other table")
    assert found.names == {f"{HOME}/metadata/ann-1.puffin"}


def test_what_is_forgotten_is_what_was_named_and_nothing_that_its_log_names():
    folder = Folder()
    line = history(folder, 3)
    theirs = history(folder, 4, line[-1])
    line += history(folder, 2, line[-1])
    reach = folder.look(line[-1], forget=[theirs[-1]])
    assert set(foreign(reach)) == set(theirs[:-1])
    assert reach.forgotten == (theirs[-1],)
    assert foreign(folder.look(line[-1], forget=theirs)) == {}
    name = "puffin-ann.forgotten-metadata"
    remembered = {name: json.dumps([theirs[1].replace("s3:", "s3a:"), 7])}
    assert set(foreign(folder.look(line[-1], properties=remembered))) == {*theirs} - {theirs[1]}
    assert len(folder.look(line[-1], properties={name: "[["}).foreign) == 4


def test_more_foreign_files_than_can_be_read_are_counted(monkeypatch):
    monkeypatch.setattr(foreign_metadata, "MOST_READ", 3)
    folder = Folder()
    line = history(folder, 3)
    history(folder, 5, line[-1])
    reach = folder.look(line[-1])
    assert (len(reach.foreign), reach.uncounted) == (3, 2)


def test_an_own_version_that_does_not_come_is_an_outage():
    folder = Folder(log_length=5)
    line = history(folder, 60)
    folder.files[line[-6]] = b"silent"  # the oldest of the log leads further back
    assert foreign(folder.look(line[-1]))[line[-6]] == "unreadable"


@pytest.mark.parametrize(
    ("metadata_location", "location", "declared", "is_there"),
    [
        ("s3://b/t/metadata/v1.metadata.json", "s3a://b/t/", None, True),
        ("file:///w/t/metadata/v1.metadata.json", "/w/t", None, True),
        ("s3://b/other/metadata/v1.metadata.json", "s3://b/t", None, False),
        ("s3://b/t2/metadata/v1.metadata.json", "s3://b/t", None, False),
        ("s3://b/m/v1.metadata.json", "s3://b/t", "s3://b/m/", True),
        ("s3://b/m/v1.metadata.json", "s3://b/t", "s3://b/elsewhere", False),
        ("", "s3://b/t", None, False),
    ],
)
def test_metadata_lies_at_the_location_or_where_a_property_says(
    metadata_location, location, declared, is_there
):
    table = SimpleNamespace(
        metadata_location=metadata_location,
        location=lambda: location,
        properties={"write.metadata.path": declared} if declared else {},
    )
    assert (location_problem(table) == "") == is_there
