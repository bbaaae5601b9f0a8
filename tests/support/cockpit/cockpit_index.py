"""A real index, small, that the page of indexes is asked to search.

Run as a program in the environment of a server: `python -m tests.support.cockpit.cockpit_index`.
"""

import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from puffin_ann.declaration import IndexDeclaration, load_declaration
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
from tests.support.cockpit.cockpit import REAL
from tests.support.paths import SAMPLE

ROWS, MORE = 1500, 20


def declared() -> IndexDeclaration:
    return load_declaration(settings().declarations_dir[0] / f"{REAL}.yaml")


def make() -> None:
    """Build it over some words, and append more that it does not hold."""
    words = pq.read_table(SAMPLE)
    catalog = load_catalog("demo")
    catalog.create_namespace("real")
    table = catalog.create_table("real.words", schema=words.schema)
    table.append(words.slice(0, ROWS))
    print(refresh_in_process(declared(), run_id="build-1"))
    table.refresh()
    table.append(words.slice(ROWS, MORE))


if __name__ == "__main__":
    make()
