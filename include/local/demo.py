"""`make demo`: a real table, the real build DAG run by Airflow and Spark, a real search."""

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from headings import heading as step
from home import CATALOG, ROOT, environment, write_catalog

TABLE = "glove.words"
INDEX = "glove_words"
DAG = f"ann_build_{INDEX}"
WORDS = ("coffee", "paris", "guitar", "winter")
FILES = 8
ROW_GROUP_ROWS = 500


def create_table() -> None:
    """Write the sample data into an Iceberg table, once."""
    from pyiceberg.catalog import load_catalog  # reads its configuration when it is imported

    catalog = load_catalog(CATALOG)
    catalog.create_namespace_if_not_exists("glove")
    if catalog.table_exists(TABLE):
        rows = catalog.load_table(TABLE).scan().count()
        step(f"table {CATALOG}.{TABLE} is there: {rows:,} rows")
        return
    data = pq.read_table(ROOT / "include" / "sample_data" / "glove-100d-20k.parquet")
    table = catalog.create_table(
        TABLE,
        schema=data.schema,
        properties={"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)},
    )
    share = -(-len(data) // FILES)
    for number in range(FILES):
        table.append(data.slice(number * share, share))
    step(f"table {CATALOG}.{TABLE} created: {len(data):,} rows in {FILES} data files")


@contextmanager
def migrating(variables: dict[str, str], log: Path) -> Iterator[None]:
    """Make Airflow's database beside what the block does, and wait for it at the block's end."""
    with log.open("w") as out:
        process = subprocess.Popen(
            ["airflow", "db", "migrate"], env=variables, stdout=out, stderr=out
        )
        try:
            yield
        finally:
            process.wait()
    if process.returncode:
        sys.exit(f"Airflow's database could not be made; the log is {log}")


def run_dag(variables: dict[str, str], log: Path) -> None:
    """Run the build DAG in Airflow, its log to a file, one line per task to the terminal."""
    with log.open("a") as out:
        step(f"Airflow runs DAG {DAG} (log: {log.relative_to(ROOT)})")
        process = subprocess.Popen(
            ["airflow", "dags", "test", DAG],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        succeeded, state = False, ""
        began = time.monotonic()
        for line in process.stdout or ():
            out.write(line)
            found = STATE.search(line)
            state = found[1] if found else state
            _show_progress(line, state, began)
            succeeded |= "DagRun Finished" in line and "state=success" in line
        process.wait()
    if process.returncode or not succeeded:
        sys.exit(f"the DAG run did not succeed; its log is {log}")


LOGGED = re.compile(r"\s((?:plan|train|assign|build|gate|publish|error|\w+Error): .*)")
STATE = re.compile(r"\bnew_state=(\w+)")
ENDED = {"success": "done", "up_for_retry": "failed, and will be tried again"}


def _show_progress(line: str, state: str, began: float) -> None:
    """Print the lines of a task log that say what was done, and one for each task that ended."""
    if "[DAG TEST] end task" in line:
        name = line.split("task_id=")[1].split()[0]
        index = line.split("map_index=")[1].split()[0]
        ended = ENDED.get(state, state)
        suffix = "" if index == "-1" else f"[{index}]"
        print(f"   {time.monotonic() - began:6.1f} s  {name}{suffix} {ended}", flush=True)
    found = LOGGED.search(line)
    if found:
        told = found[1].split(" [", 1)[0]
        print(textwrap.fill(told, 100, initial_indent=" " * 13, subsequent_indent=" " * 15))
        sys.stdout.flush()


def main() -> None:
    """Run the demo; with the argument `table`, only create its table."""
    local = ROOT / ".local"
    began = time.monotonic()
    write_catalog(local)
    variables = environment(local)
    os.environ.update(variables)
    if sys.argv[1:] == ["table"]:
        create_table()
        return
    log = local / "demo.log"
    with migrating(variables, log):
        create_table()
    run_dag(variables, log)
    step("what is published")
    name = f"{CATALOG}.{TABLE}"
    subprocess.run(["puffin-ann", "status", name, INDEX], env=variables, check=True)
    step("the ten nearest words, searched through the published Puffin file")
    keys = [argument for word in WORDS for argument in ("--key", f"word={word}")]
    subprocess.run(
        ["puffin-ann", "search", name, INDEX, *keys, "--k", "10", "--columns", "word"],
        env=variables,
        check=True,
    )
    took = f"{time.monotonic() - began:.0f} s after setup"
    step(f"done in {took}; try `make up`, or: source .local/env")
    exports = ("PYICEBERG_HOME", "PUFFIN_ANN_CACHE_DIR")
    lines = [f"export {key}={variables[key]}" for key in exports]
    (local / "env").write_text("\n".join([*lines, f"export PATH={ROOT}/.venv/bin:$PATH", ""]))


if __name__ == "__main__":
    main()
