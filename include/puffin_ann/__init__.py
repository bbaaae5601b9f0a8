"""Vector indexes that live inside Apache Iceberg tables as Puffin files.

import puffin_ann

index = puffin_ann.open_index("demo.glove.words", "glove_words")
index.search(vector, k=10, columns=["word"])

The packages, each of which imports only from those below it:

    airflow | cli | spark_apps    who calls: DAGs and the UI's page, the command line, Spark
    compilation                   compile kernels ahead, as uses of all below it need them
    lifecycle                     build, refresh, publish, maintain: the life of an index
    search                        open an index at a snapshot and search it
    lake | engines                Iceberg tables and their stores | one interface per algorithm
    blobs | ann                   byte layouts | algorithms on arrays
    puffin                        the container file
    declaration                   what users declare
    settings, errors, ...         what all of them share
"""

import logging
from typing import TYPE_CHECKING, Any

from puffin_ann.imports.uncollected import imported
from puffin_ann.redaction import REDACTION
from puffin_ann.version import __version__

if TYPE_CHECKING:
    from puffin_ann.search.index import Index as Index
    from puffin_ann.search.open_index import open_index as open_index

__all__ = ["Index", "__version__", "open_index"]

# Every module of ours logs by one of these; filters are not handed down to the second.
logging.getLogger("puffin_ann").addFilter(REDACTION)
logging.getLogger("puffin_ann.kernels").addFilter(REDACTION)


def __getattr__(name: str) -> Any:
    """Import the search only when it is asked for: DAG files import this package, too."""
    if name in ("Index", "open_index"):
        return getattr(imported("puffin_ann.search.open_index"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
