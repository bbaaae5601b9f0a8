"""Versions published under tags, and where they are."""

from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.moments import now_ms
from puffin_ann.puffin import PuffinReader
from tests.support.lake import table_events

DAY_MS = 24 * table_events.HOUR_MS


def later() -> int:
    return now_ms() + 2 * DAY_MS


def published(table, run="a", **declared) -> str:
    """Build and publish by tag; returns the location of the file."""
    before = own_tags(table.refresh()).keys()
    table_events.publish(table, run, publish="tag", **declared)
    (new,) = own_tags(table.refresh()).keys() - before
    return slots(table)[new].statistics_path


def tagged_files(table) -> set[str]:
    table.refresh()
    return {slots(table)[held].statistics_path for held in own_tags(table)}


def indexes_in(table, path) -> set[str]:
    with table.io.new_input(path).open() as stream:
        blobs = PuffinReader(stream, name=path).metadata.blobs
    return {blob.properties["index"] for blob in blobs}


def main(table) -> list[int]:
    return [entry.snapshot_id for entry in table.refresh().history()]
