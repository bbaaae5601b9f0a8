"""`puffin-ann warm`: bring all shards of an index to local disk, before anyone searches."""

from typing import Annotated

import typer

from puffin_ann.cli.output import AsJson, TableName, print_json, say


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
        say(
            f"index {index} of {table}: {found.filled} blobs brought, {found.filled_bytes} bytes "
            f"on disk; {found.hits} were there"
        )
