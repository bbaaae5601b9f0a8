"""A cell of `make test-matrix`: `puffin-ann build` on two cores of Spark, and a search."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

DECLARATION = """\
table: demo.glove.words
column: embedding
key: word
metric: l2
shards: 2
"""


def main(place: Path) -> None:
    """Build an index over small vectors, and look for the nearest of one."""
    (place / "indexes").mkdir(parents=True)
    (place / "indexes" / "words.yaml").write_text(DECLARATION)
    variables = {
        "PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{place / 'catalog.db'}",
        "PYICEBERG_CATALOG__DEMO__WAREHOUSE": f"file://{place / 'warehouse'}",
        "PUFFIN_ANN_CACHE_DIR": str(place / "cache"),
        "PUFFIN_ANN_DECLARATIONS_DIR": str(place / "indexes"),
    }
    os.environ |= variables
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    vectors = pa.array([[float(n), float(n % 7)] for n in range(4000)], pa.list_(pa.float32()))
    rows = pa.table({"word": [f"w{n}" for n in range(4000)], "embedding": vectors})
    catalog.create_table("glove.words", schema=rows.schema).append(rows)
    subprocess.run(["puffin-ann", "build", "words", "--master", "local[2]"], check=True)
    search = ["puffin-ann", "search", "demo.glove.words", "words", "--key", "word=w3000"]
    answer = subprocess.run(
        [*search, "--k", "2", "--columns", "word", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert "w2993" in answer.stdout or "w3007" in answer.stdout or "w2999" in answer.stdout, found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
