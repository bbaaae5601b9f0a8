"""Delete the file of a publication that the catalog refused."""

import logging

from pyiceberg.table import Table

from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.s3 import s3_of
from puffin_ann.lifecycle.retention.withheld import Protection

log = logging.getLogger("puffin_ann")


def discard_refused(table: Table, path: str) -> None:
    """Delete a file that the catalog refused to register, unless others may have registered it.

    Where the store copies, its name follows from what it is made of: a run of the same name, by
    another registration of the table, makes the same file. Elsewhere nobody else uses the name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if s3_of(table.io, path) is not None and (why := Protection.of(table).why_file_kept(path)):
        log.warning("publish: %s is left behind: %s", path, why)
        return
    delete_object(table.io, path)
