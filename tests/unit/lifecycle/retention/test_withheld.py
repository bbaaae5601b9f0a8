from types import SimpleNamespace

import pytest

from puffin_ann.errors import StoreUnavailableError
from puffin_ann.lake.metadata.files import MetadataReader
from puffin_ann.lake.metadata.foreign import Foreign, Reach
from puffin_ann.lifecycle.retention.removable import Removable
from puffin_ann.lifecycle.retention.withheld import ALL_OVER_MS, Protection

TABLE = SimpleNamespace(
    location=lambda: "s3://lake/db/words/",
    properties={},
    catalog=SimpleNamespace(name="lake"),
    name=lambda: ("db", "words"),
)
METADATA = "s3://lake/db/words/metadata"


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/db/other/metadata/ann-x.puffin",
        "s3://lake/db/words/metadata-of-others/ann-x.puffin",
        "s3://lake/db/words/metadata/../../other/ann-x.puffin",
        "s3://lake/db/words/metadata/%2e%2e/%2e%2e/other/ann-x.puffin",
    ],
)
def test_what_lies_outside_of_the_tables_metadata_folder_or_may_do_so_is_kept(location):
    protection = Protection(Reach(TABLE), MetadataReader())
    assert "outside of s3://lake/db/words/metadata" in protection.why_file_kept(location)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_what_lies_in_it_and_nobody_names_may_go(scheme):
    protection = Protection(Reach(TABLE), MetadataReader())
    assert protection.why_file_kept(f"{scheme}://lake/db/words/metadata/ann-x.puffin") == ""


def protection(*names: str, kind: str = "other history", problem: str = "") -> Protection:
    """What a metadata file protects that is not of the table's history, and names some objects."""
    stray = Foreign(
        f"{METADATA}/00009-b.metadata.json", kind, names=frozenset(names), problem=problem
    )
    return Protection(Reach(TABLE, foreign=(stray,)), MetadataReader())


def removable(location: str, kind: str = "superseded version", idle_seconds: int = 0) -> Removable:
    return Removable(
        kind=kind,
        location=location,
        bytes=1,
        why="",
        idle_seconds=idle_seconds,
        grace_seconds=0,
    )


@pytest.mark.parametrize(
    "location", [f"{METADATA}/ann-x.puffin", "s3a://lake/db/words/metadata//ann-x.puffin"]
)
def test_a_file_that_foreign_metadata_names_stays_by_whichever_spelling(location):
    named = protection("s3://lake/db/words/metadata/ann-x.puffin")
    assert "names it, a metadata file that is not of this catalog" in named.why_kept(
        removable(location)
    )


def test_a_superseded_file_that_nobody_else_names_goes_beside_foreign_metadata_too():
    assert protection().why_kept(removable(f"{METADATA}/ann-x.puffin")) == ""


@pytest.mark.parametrize("kind", ["staging", "upload"])
def test_what_may_be_of_a_run_of_another_registration_goes_when_no_run_lasts_so_long(kind):
    place = f"{METADATA}/_ann-staging/words/run"
    over = ALL_OVER_MS // 1000
    assert "another registration" in protection().why_kept(removable(place, kind, over - 1))
    assert protection().why_kept(removable(place, kind, over)) == ""
    alone = Protection(Reach(TABLE), MetadataReader())
    assert alone.why_kept(removable(place, kind)) == ""


def test_leases_and_evaluations_stay_as_long_as_the_table_is_registered_elsewhere():
    record = removable(f"{METADATA}/_ann-staging/words/_lease-00000001", "record", 10**9)
    assert "another registration of the table may need it" in protection().why_kept(record)
    assert Protection(Reach(TABLE), MetadataReader()).why_kept(record) == ""


@pytest.mark.parametrize("kind", ["damaged", "unreadable"])
def test_nothing_at_all_goes_where_it_is_not_known_what_a_metadata_file_names(kind):
    unknown = protection(kind=kind, problem="it cannot be read")
    assert "it cannot be read" in unknown.nothing_goes
    assert unknown.why_kept(removable(f"{METADATA}/ann-x.puffin")) == unknown.nothing_goes


def test_a_store_that_does_not_give_a_metadata_file_is_an_error_and_a_damaged_one_is_not():
    protection(kind="damaged", problem="broken").require_readable()
    with pytest.raises(StoreUnavailableError, match="no answer"):
        protection(kind="unreadable", problem="no answer").require_readable()
