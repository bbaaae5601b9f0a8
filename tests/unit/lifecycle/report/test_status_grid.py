"""How an index's status is shown: complete, and nothing of the table's text is taken for markup."""

import pytest

from puffin_ann.lifecycle.documents.run import Trial
from puffin_ann.lifecycle.report.status import IndexStatus, as_text

PLAIN = {
    "index": "words",
    "table": "demo.glove.words",
    "algorithm": "vamana",
    "trials": (),
    "metric": "cosine",
    "dimension": 100,
    "snapshot_id": 12,
    "base_snapshot_id": 11,
    "published_at": "2026-11-23T04:00:00Z",
    "file": "s3://b/metadata/ann-words.puffin",
    "bytes": 2_000_000,
    "file_bytes": 3_000_000,
    "shards": 2,
    "partitions": 16,
    "deltas": 0,
    "delta_rows": 0,
    "vectors": 20_000,
    "tombstones": 0,
    "tombstone_ratio": 0.0,
    "skipped": {},
    "coverage": 1.0,
    "rows_to_scan": 0,
    "rows_masked": 0,
    "recall": 0.9612,
    "recall_low": 0.955,
    "recall_high": 0.967,
    "recall_k": 10,
    "recall_queries": 500,
    "recall_target": 0.95,
    "search_width": 64,
    "probe_partitions": 3,
    "seconds": {"train": 1.25},
    "fingerprint": "f",
    "run_id": "run",
    "declared": True,
}


def shown(**changes: object) -> dict[str, str]:
    """The lines of a status, by what stands at their beginning; folded ones are put together."""
    lines: dict[str, str] = {}
    name = ""
    for line in as_text([IndexStatus(**{**PLAIN, **changes})]).splitlines()[1:]:
        cells = [cell.strip() for cell in line.strip("┌┐└┘│─").split("│")]
        if len(cells) == 2:
            name = cells[0] or name
            lines[name] = f"{lines.get(name, '')} {cells[1]}".strip()
    return lines


def test_a_merge_that_was_left_undone_is_told_beside_the_deltas():
    lines = shown(deltas=1, delta_rows=900, undone="shard 0 finds too little; 'puffin-ann build'")
    assert lines["deltas"] == "1, 900 vectors"
    assert lines["left undone"] == "shard 0 finds too little; 'puffin-ann build'"
    assert "left undone" not in shown(deltas=1, delta_rows=900)


def test_an_index_that_is_up_to_date_is_shown_without_what_does_not_concern_it():
    lines = shown()
    assert lines["shards"] == "2, 16 partitions"
    assert lines["snapshot"] == "12 (covers 11)"
    assert lines["coverage"] == "100.00%"
    assert lines["recall"] == "0.9612 at k=10 (95 % 0.9550 to 0.9670, 500 queries), target 0.95"
    assert lines["search"] == "width 64, 3 partitions probed"
    assert not {"tag", "deltas", "tombstones", "tried", "undeclared", "renamed?"} & lines.keys()


def test_the_tag_that_keeps_the_file_is_shown():
    assert shown(tag="puffin_ann_words_1")["tag"] == "puffin_ann_words_1, which keeps the file"


def test_what_searches_pay_for_is_shown():
    lines = shown(
        deltas=2,
        delta_rows=1500,
        tombstones=300,
        tombstone_ratio=0.125,
        coverage=0.9,
        rows_to_scan=1234,
        rows_masked=56,
        skipped={"null": 2, "not finite": 1},
    )
    assert lines["deltas"] == "2, 1,500 vectors"
    assert lines["tombstones"] == "300, at most 12.5% of a shard"
    assert lines["coverage"] == "90.00%; 1,234 rows to scan, 56 masked"
    assert lines["vectors"] == "20,000"
    assert lines["skipped"] == "2 null, 1 not finite: rows that no search can find"


def test_a_recall_that_was_not_measured_is_not_shown_as_a_number():
    measured = ("recall", "recall_low", "recall_high", "recall_k", "recall_queries")
    assert "recall" not in shown(**dict.fromkeys(measured))


def test_a_snapshot_that_has_expired_is_said_to_have():
    assert shown(published_at=None)["published"] == "not in the table's history any more"


@pytest.mark.parametrize(("declared", "line"), [(None, "declared"), (False, "undeclared")])
def test_an_index_that_is_not_known_to_be_declared_says_how_to_get_its_declaration(declared, line):
    lines = shown(declared=declared)
    assert "'puffin-ann status demo.glove.words words --declaration'" in lines[line]


def test_of_an_index_that_may_have_been_renamed_the_command_is_shown():
    lines = shown(declared=False, renamed_to="glove")
    assert "'puffin-ann rename words glove'" in lines["renamed?"]
    assert "renamed?" not in shown(declared=True, renamed_to="glove")


def test_text_in_brackets_is_shown_as_it_is():
    assert shown(file="s3://b/[bold]x[/bold]/ann.puffin")["file"] == (
        "s3://b/[bold]x[/bold]/ann.puffin"
    )


def test_what_the_engines_of_auto_did_is_shown_one_line_each():
    trial = Trial(
        algorithm="hnsw",
        rows=10_000,
        search_width=40,
        recall=0.951,
        queries_per_second=12_345.6,
        build_seconds=1.0,
    )
    assert shown(trials=(trial,))["tried"] == (
        "hnsw: 12,346 queries a second at recall 0.9510, 10,000 sampled rows"
    )


def test_files_that_a_version_shares_with_earlier_ones_are_counted():
    assert "of earlier versions" not in shown()["bytes"]
    assert shown(earlier_files=2)["bytes"].endswith(" and 2 of earlier versions")
