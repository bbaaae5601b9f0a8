"""Which tags are ours: a name alone does not make one."""

from puffin_ann.lake.catalog.index_snapshots import UNDER_TAG
from puffin_ann.lake.metadata.own_tags import PREFIX, own_tags, tag_name
from puffin_ann.lake.metadata.registered import NAMED_BY
from puffin_ann.lifecycle.retention.rules import names_of_snapshots
from tests.support.lake.metadata_tables import Snap, table_of

FILE = {NAMED_BY: "s3://bucket/demo/words/metadata/ann-words-1-a-n1-b.puffin"}
OURS = Snap(3, 0, {**FILE, UNDER_TAG: f"{PREFIX}words_1"})


def test_a_run_of_an_index_has_one_tag_that_needs_no_quotes_in_sql():
    name = tag_name("words_index", "scheduled__2026-01-01T00:00:00+00:00")
    assert name == tag_name("words_index", "scheduled__2026-01-01T00:00:00+00:00")
    assert name.startswith(f"{PREFIX}words_index_")
    assert name.isidentifier()
    assert name.islower()
    assert name != tag_name("words_index", "scheduled__2026-01-02T00:00:00+00:00")


def test_a_users_tag_of_such_a_name_is_not_ours():
    tags = {f"{PREFIX}words_1": 3, f"{PREFIX}best": 2, "release": 1, "mine": 3}
    table = table_of([Snap(1, 0), Snap(2, 0)], alone=[OURS], tags=tags)
    assert own_tags(table) == {3: f"{PREFIX}words_1"}
    assert names_of_snapshots(table) == {
        1: ("tag 'release'",),
        2: ("branch 'main'", f"tag '{PREFIX}best'"),
        3: ("tag 'mine'",),
    }


def test_an_index_snapshot_that_has_lost_its_parent_is_not_ours():
    table = table_of([Snap(1, 0, FILE)], tags={f"{PREFIX}words_1": 1})
    assert own_tags(table) == {}
