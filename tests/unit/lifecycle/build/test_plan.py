from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.declaration import parse_declaration
from puffin_ann.errors import BadInputError, TooFewRowsError
from puffin_ann.lifecycle.build.plan import (
    NewestVersion,
    assign_tasks,
    nothing_to_do,
    sample_rows,
    shard_groups,
    submits,
)
from puffin_ann.lifecycle.documents.run import PlannedFile
from puffin_ann.lifecycle.ingest.preconditions import check_cells, check_rows, shards_for
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id


def _file(number: int, rows: int) -> PlannedFile:
    return PlannedFile(file_id=number, path=f"f{number}", size=1, sequence_number=1, rows=rows)


@given(st.lists(st.integers(0, 5000), max_size=40), st.integers(100, 100_000))
def test_every_part_of_every_file_is_in_one_task_in_order(rows, task_bytes):
    files = [_file(number, count) for number, count in enumerate(rows)]
    tasks = assign_tasks(files, row_bytes=40, task_bytes=task_bytes)
    parts = [part for task in tasks for part in task.parts]
    assert parts == sorted(parts)
    for number, _ in enumerate(files):
        cuts = [part for part in parts if part[0] == number]
        assert [cut[1] for cut in cuts] == list(range(cuts[0][2]))
        assert all(cut[2] == len(cuts) for cut in cuts)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1000, 100_000))
def test_no_task_holds_more_than_its_bytes_unless_one_row_group_does(rows, task_bytes):
    files = [_file(number, count) for number, count in enumerate(rows)]
    for task in assign_tasks(files, row_bytes=40, task_bytes=task_bytes):
        held = sum(files[number].rows * 40 // cuts for number, _, cuts in task.parts)
        assert held <= task_bytes


@given(st.integers(1, 500), st.integers(1, 100))
def test_groups_hold_every_shard_once_and_are_even(shards, submits):
    groups = shard_groups(shards, submits)
    dealt = [shard for group in groups.values() for shard in group]
    assert dealt == list(range(shards))
    assert len(groups) <= submits
    sizes = [len(group) for group in groups.values()]
    assert max(sizes) - min(sizes) <= 1


MIB = 1 << 20


def test_shards_that_are_built_while_an_application_starts_share_one():
    assert submits(0, 16) == 1
    assert submits(200 * MIB, 16) == 1
    assert submits(1024 * MIB, 16) == 8
    assert submits(10**12, 16) == 16


def test_a_sample_is_the_larger_of_one_percent_and_256_rows_a_centroid_within_bounds():
    assert sample_rows(10_000_000, 16, row_bytes=400, sample_bytes=10**9) == 100_000
    assert sample_rows(20_000, 16, row_bytes=400, sample_bytes=10**9) == 4096
    assert sample_rows(1000, 16, row_bytes=400, sample_bytes=10**9) == 1000
    assert sample_rows(10_000_000, 16, row_bytes=400, sample_bytes=4_000_000) == 10_000


def test_nothing_is_built_only_if_the_newest_version_has_the_same_shape_and_all_live_rows():
    declared = parse_declaration({"name": "i", "table": "c.n.t", "column": "v"}, source="f")
    same = NewestVersion(declared.fingerprint(), is_current=True, recall=0.96)
    assert nothing_to_do(declared, same, force=False)
    assert nothing_to_do(declared, same, force=True) is None
    assert nothing_to_do(declared, replace(same, is_current=False), force=False) is None
    assert nothing_to_do(declared, replace(same, fingerprint="b"), force=False) is None
    assert nothing_to_do(declared, None, force=False) is None


def test_a_target_above_what_was_measured_is_built_for():
    lower, higher = (
        parse_declaration(
            {"name": "i", "table": "c.n.t", "column": "v", "recall_target": target}, source="f"
        )
        for target in (0.9, 0.97)
    )
    measured = NewestVersion(lower.fingerprint(), is_current=True, recall=0.96)
    assert nothing_to_do(lower, measured, force=False)
    assert nothing_to_do(higher, measured, force=False) is None


def test_a_table_without_rows_is_refused():
    with pytest.raises(TooFewRowsError, match="no live rows"):
        check_rows("c.n.t", 0)
    check_rows("c.n.t", 1)


def declared_with(**declared):
    data = {"name": "i", "table": "c.n.t", "column": "v", **declared}
    return parse_declaration(data, source="f")


def test_partitions_that_one_blob_cannot_hold_are_refused_with_how_many_it_can():
    told = r"would have 2,525,796,224 bytes; .* at most 2,147,483,647: declare {}$"

    with pytest.raises(BadInputError, match=told.format("a partitions_per_shard of at most 696")):
        check_cells(declared_with(shards=1000, partitions_per_shard=819), 10**9, 767)
    check_cells(declared_with(shards=1000, partitions_per_shard=696), 10**9, 767)
    with pytest.raises(BadInputError, match=r"declare a partitions_per_shard of at most 2$"):
        check_cells(declared_with(shards=10_000, partitions_per_shard=3), 10**9, 20_000)


def test_partitions_of_wide_vectors_that_even_one_for_a_shard_cannot_hold_ask_for_fewer_shards():
    with pytest.raises(BadInputError, match=r"declare fewer shards$"):
        check_cells(declared_with(shards=10_000, partitions_per_shard=1), 10**9, 60_000)


def test_only_the_shards_that_are_built_have_partitions():
    many = declared_with(shards=10_000, partitions_per_shard=4096)

    check_cells(many, 20, 767)
    with pytest.raises(BadInputError, match="of 10,000 shards of 4,096 partitions"):
        check_cells(many, 10**6, 767)
    check_cells(declared_with(algorithm="centroid"), 10**9, 767)


@pytest.mark.parametrize(("rows", "shards"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_no_more_shards_are_built_than_there_are_rows(rows, shards):
    data = {"name": "i", "table": "c.n.t", "column": "v", "shards": 3}
    assert shards_for(parse_declaration(data, source="f"), rows) == shards


def test_centroids_have_no_shards_however_many_rows_there_are():
    data = {"name": "i", "table": "c.n.t", "column": "v", "algorithm": "centroid"}
    assert shards_for(parse_declaration(data, source="f"), 9) == 0


def test_run_ids_become_path_names_that_stay_different():
    plain = "cli-20260101T000000-7"
    assert safe_run_id(plain) == plain
    first = safe_run_id("manual__2026-01-01T00:00:00+00:00")
    second = safe_run_id("manual__2026-01-01T00:00:00+00-00")
    assert first != second
    assert not set(first) & set("/:+ ")
