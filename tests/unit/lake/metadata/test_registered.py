from types import SimpleNamespace

from puffin_ann.lake.metadata.registered import find_registered


def table_of(snapshots: dict[int, int], *entries: tuple[int, str]) -> SimpleNamespace:
    """Snapshots by id with their sequence number, and (snapshot id, path) of statistics."""
    return SimpleNamespace(
        snapshots=lambda: [
            SimpleNamespace(snapshot_id=number, sequence_number=order, timestamp_ms=0)
            for number, order in snapshots.items()
        ],
        metadata=SimpleNamespace(
            statistics=[
                SimpleNamespace(
                    snapshot_id=number,
                    statistics_path=path,
                    file_size_in_bytes=number,
                    file_footer_size_in_bytes=3,
                    blob_metadata=[SimpleNamespace(type="theta")],
                )
                for number, path in entries
            ]
        ),
    )


def test_files_come_newest_first_and_once() -> None:
    table = table_of({10: 1, 20: 2, 5: 3}, (10, "a"), (5, "b"), (20, "a"))
    found = find_registered(table)
    assert [(entry.path, entry.snapshot_ids) for entry in found] == [("b", (5,)), ("a", (20, 10))]
    assert [entry.file_size for entry in found] == [5, 20]
    assert {entry.listed for entry in found} == {frozenset({"theta"})}


def test_entries_of_snapshots_that_are_gone_come_last() -> None:
    found = find_registered(table_of({10: 1}, (99, "lost"), (10, "a")))
    assert [entry.path for entry in found] == ["a", "lost"]


def test_a_table_without_statistics_has_none() -> None:
    assert find_registered(table_of({10: 1})) == []
