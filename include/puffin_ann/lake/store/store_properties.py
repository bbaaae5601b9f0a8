"""Which of a table's own properties would decide where its readers' requests go.

PyIceberg lays a table's properties over those of the catalog when it connects to the store. So
anyone who may write to a table could send its readers, and their credentials, to an address of
their choice. Java's Iceberg takes none of these properties from a table.
"""

import re

from pyiceberg.table import Table

from puffin_ann.errors import UnsupportedTableError

_STEERING = re.compile(
    r"py-io-impl|s3\.(endpoint|proxy-uri|signer.*|retry-strategy-impl|role-.*)|client\.role-.*"
    r"|adls\.(connection-string|account-(host|name)|(blob|dfs)-storage-(authority|scheme))"
    r"|gcs\.(service\.host|session-kwargs)|hdfs\.(host|port)|hf\.endpoint"
)


def refuse_steering(table: Table, name: str) -> None:
    """Refuse a table whose properties, and not the catalog, say which store it is read from.

    Args:
        table: as its catalog gave it.
        name: as it was asked for.

    Raises:
        UnsupportedTableError: names the properties and where they belong.
    """
    given = {**table.catalog.properties, **table.config}
    found = [
        key
        for key, value in sorted(table.metadata.properties.items())
        if _STEERING.fullmatch(key) and given.get(key) != value
    ]
    if found:
        raise UnsupportedTableError(
            f"table {name} sets {', '.join(found)} in its own properties: these would decide where "
            "its readers' requests and credentials go; set them in the catalog's configuration, "
            "and remove them from the table"
        )
