"""A cell of `make test-matrix`: an index built in one process, and searched, without any extra."""

import os
import sys
from pathlib import Path


def main(place: Path) -> None:
    """Build an index over small vectors, and look for the nearest of one."""
    place.mkdir(parents=True)
    os.environ["PYICEBERG_CATALOG__DEMO__URI"] = f"sqlite:///{place / 'catalog.db'}"
    os.environ["PYICEBERG_CATALOG__DEMO__WAREHOUSE"] = f"file://{place / 'warehouse'}"
    os.environ["PUFFIN_ANN_CACHE_DIR"] = str(place / "cache")

    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    import puffin_ann
    from puffin_ann.declaration import parse_declaration
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process
    from puffin_ann.lifecycle.runtime.runners import InProcess

    assert "site-packages" in (puffin_ann.__file__ or ""), puffin_ann.__file__
    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    vectors = pa.array([[float(n), float(n % 7)] for n in range(4000)], pa.list_(pa.float32()))
    rows = pa.table({"embedding": vectors})
    catalog.create_table("glove.words", schema=rows.schema).append(rows)
    declared = {"name": "words", "table": "demo.glove.words", "column": "embedding", "metric": "l2"}
    declaration = parse_declaration(declared, source="the cell")
    refresh_in_process(declaration, run_id="tried", maintenance=False, runner=InProcess())
    found = puffin_ann.open_index("demo.glove.words", "words").search([[3000.2, 4.0]], 1)
    assert found["locator"][0]["row_offset"].as_py() == 3000, found
    for absent in ("airflow", "boto3", "hnswlib", "pyspark", "typer"):
        assert absent not in sys.modules, absent


if __name__ == "__main__":
    main(Path(sys.argv[1]))
