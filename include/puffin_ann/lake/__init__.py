"""What the library knows of tables: everything that talks to Iceberg, Parquet and object stores.

    commit      change the table: publish files, snapshots, statistics entries
    read        read data: manifests, row deletes, Parquet, row identities
    metadata    read Iceberg's metadata files, those of other catalog entries included
    catalog     find tables and snapshots
    store       objects of the table's store: list, read, stage, assemble, lease

It knows Puffin files as containers, and nothing of the indexes in them.
"""

from puffin_ann.imports.deferred_imports import defer
from puffin_ann.imports.pyiceberg_configuration import require_readable

# What PyIceberg imports for scans, for its configuration's file, and for conditions as text.
defer("pyarrow.dataset")
defer("pyarrow.compute", Expression="pyarrow._compute")
defer("strictyaml")
defer("pyiceberg.expressions.parser")

require_readable()
