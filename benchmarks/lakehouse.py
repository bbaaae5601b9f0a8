"""A table with real vectors in an embedded catalog, and builds of indexes over it."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puffin_ann.declaration import IndexDeclaration, parse_declaration

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.lifecycle.documents.run import PlanPointer
    from puffin_ann.lifecycle.runtime.runners import Runner

CATALOG = "bench"
NAME = "rows"
TABLE = f"{CATALOG}.vectors.{NAME}"
FILES = 8
ROW_GROUP_ROWS = 4096


def configure(folder: Path) -> None:
    """Point PyIceberg and the library at a folder; before PyIceberg is imported."""
    if (
        "pyiceberg" in sys.modules
        and f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI" not in os.environ
    ):
        raise RuntimeError("PyIceberg reads its configuration when it is imported: configure first")
    os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI"] = f"sqlite:///{folder}/catalog.db"
    os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__WAREHOUSE"] = f"file://{folder}/warehouse"
    (folder / "warehouse").mkdir(exist_ok=True)
    from puffin_ann.lake.catalog.embedded import create_database

    create_database(folder / "catalog.db")
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)


def create_table(
    vectors: NDArray[np.float32],
    text: Sequence[str] = (),
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    location: str | None = None,
    name: str = NAME,
    numbers: Mapping[str, NDArray[np.int64]] | None = None,
    partitioned_by: str | None = None,
) -> "Table":
    """Write vectors to a table, with their numbers in column `id`, in several data files.

    Args:
        vectors: (n, d) float32.
        text: of each row, in column `text`; the table has none without.
        row_group_rows: rows of a row group, at most.
        location: of the table, if it is to be elsewhere than in the warehouse.
        name: of the table, in namespace `vectors`.
        numbers: further columns by name, (n,) int64 each.
        partitioned_by: the one of them whose values partition the table; None: nothing does.
    """
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(CATALOG)
    catalog.create_namespace_if_not_exists("vectors")
    fields = [("id", pa.int64()), ("embedding", pa.list_(pa.float32()))]
    numbers = numbers or {}
    fields += [("text", pa.string())] if text else []
    schema = pa.schema([*fields, *((column, pa.int64()) for column in numbers)])
    table = catalog.create_table(
        f"vectors.{name}",
        schema=schema,
        location=location,
        properties={"write.parquet.row-group-limit": str(row_group_rows)},
    )
    if partitioned_by is not None:
        with table.update_spec() as spec:
            spec.add_identity(partitioned_by)
    for part in np.array_split(np.arange(len(vectors)), FILES):
        values = pa.array(vectors[part].ravel())
        offsets = pa.array(np.arange(len(part) + 1, dtype=np.int32) * vectors.shape[1])
        lists = pa.ListArray.from_arrays(offsets, values)
        words = [pa.array([text[at] for at in part.tolist()])] if text else []
        others = [pa.array(values[part]) for values in numbers.values()]
        table.append(pa.table([pa.array(part), lists, *words, *others], schema=schema))
    return table


def declared(**changes: Any) -> IndexDeclaration:
    """Return the declaration of an index of four shards, otherwise with every default."""
    fields = {
        "name": "bench",
        "table": TABLE,
        "column": "embedding",
        "metric": "l2",
        "shards": 4,
        **changes,
    }
    return parse_declaration(fields, source="benchmark")


def build(declaration: IndexDeclaration, run_id: str, runner: "Runner") -> "PlanPointer":
    """Run a whole build and publish it; returns the plan's pointer."""
    from puffin_ann.lifecycle.build import stages
    from puffin_ann.lifecycle.documents.run_ref import RunRef
    from puffin_ann.lifecycle.runs import build as run
    from puffin_ann.lifecycle.runs import publish

    plan = run.plan_build(declaration, run_id=run_id, overrides={"force": True})
    this_run = RunRef.planned(plan)
    stages.train(runner, this_run)
    stages.assign(runner, this_run)
    for group in plan.groups:
        stages.build_group(runner, this_run, group)
    stages.gate(runner, this_run)
    publish.publish(this_run)
    return plan


def timed_run(
    declaration: IndexDeclaration, run_id: str, action: str
) -> tuple[float, dict[str, float], dict[str, Any]]:
    """Do what is due for an index, in this process, as `puffin-ann refresh` does.

    Args:
        declaration: the index; one that is not there is built.
        run_id: names the run.
        action: what has to be due, `refresh` or `build`.

    Returns:
        Its seconds, those of its steps, and what was done.
    """
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process

    steps: dict[str, float] = {}

    @contextmanager
    def step(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        steps[name] = time.perf_counter() - began

    began = time.perf_counter()
    done = refresh_in_process(declaration, run_id=run_id, force=True, progress=step)
    seconds = time.perf_counter() - began
    if done["action"] != action:
        raise RuntimeError(f"{action} was due, but it did: {done['action']}, {done['reason']}")
    return seconds, steps, done
