"""`puffin-ann warm`: bring all shards of an index to local disk, before anyone searches."""

from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import AsJson, TableName, print_json, say
from puffin_ann.wording import counted

if TYPE_CHECKING:
    from puffin_ann.search.cache.local_cache import CacheStatistics


def warm(
    table: TableName,
    index: Annotated[str, typer.Argument(help="The index's name.")],
    as_json: AsJson = False,
) -> None:
    """Bring all shards of an index to the cache on local disk.

    Searches answer from there. Without, they read the nearest rows from the table's store, and a
    shard is brought once it is asked often.

    Example: puffin-ann warm demo.glove.words glove_words
    """
    from puffin_ann.search.open_index import open_index

    opened = open_index(table, index)
    opened.warm(lookups=False)
    found = opened.cache_statistics
    if as_json:
        print_json({"brought": found.filled, "bytes": found.filled_bytes, "were_there": found.hits})
    else:
        say(f"index {index} of {table}: {_told(found)}")


def _told(found: "CacheStatistics") -> str:
    """Return what was brought, and what was there."""
    there = f"{counted(found.hits, 'blob')} {'was' if found.hits == 1 else 'were'} there already"
    if not found.filled:
        return f"nothing to bring: {there if found.hits else 'it has no shards'}"
    brought = f"{counted(found.filled, 'blob')} brought, {found.filled_bytes:,} bytes on disk"
    return f"{brought}; {there}" if found.hits else brought
