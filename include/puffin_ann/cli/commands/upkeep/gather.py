"""`puffin-ann gather`: publish an index again as one file, without building it."""

from puffin_ann.cli.declarations import DeclaredIndex, find_declared
from puffin_ann.cli.output import AsJson, print_json, say
from puffin_ann.wording import counted


def gather(index: DeclaredIndex, as_json: AsJson = False) -> None:
    """Publish an index again as one file, without building it.

    A version of a large index names files of earlier versions that have what did not change.
    Afterwards one file has all of it, to be copied to another place or handed to others; the next
    refresh goes on from there.

    Example: puffin-ann gather glove_words
    """
    from puffin_ann.lifecycle.maintain.gather import gather as publish_whole

    report = publish_whole(find_declared(index).table, index)
    if as_json:
        print_json(report.model_dump())
    elif report.files == 1:
        say(f"all of index {report.index} of {report.table} is in {report.file}")
    else:
        say(
            f"all of index {report.index} of {report.table} is in {report.file}; "
            f"it was in {counted(report.files, 'file')}"
        )
