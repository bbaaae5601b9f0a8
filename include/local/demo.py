"""`make demo`: a real table, the real build DAG run by Airflow and Spark, a real search."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dag_run import give_back_leases, one_at_a_time, working_on
from headings import heading as step
from home import CATALOG, ROOT, environment, write_catalog

from puffin_ann.cli.interrupts import ended_by_interrupts
from puffin_ann.settings import settings

TABLE = "glove.words"
INDEX = "glove_words"
DAG = f"ann_build_{INDEX}"
WORDS = ("coffee", "paris", "guitar", "winter")
FILES = 8
ROW_GROUP_ROWS = 500


def create_table() -> None:
    """Write the sample data into an Iceberg table, once."""
    import pyarrow.parquet as pq
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
    """Make Airflow's database beside what the block does, and wait for it at the block's end.

    No interrupt reaches it: half a database would be in the way of the next demo.
    """
    with log.open("w") as out:
        process = subprocess.Popen(
            ["airflow", "db", "migrate"],
            env=variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            yield
        finally:
            process.wait()
    if process.returncode:
        sys.exit(f"Airflow's database could not be made; the log is {log}")


def run_dag(variables: dict[str, str], log: Path, record: TextIO) -> None:
    """Run the build DAG in Airflow, its log to a file, one line per task to the terminal."""
    command = ["airflow", "dags", "test", DAG]
    succeeded, shown = False, Shown()
    with log.open("a") as out:
        step(f"Airflow runs DAG {DAG} (log: {log.relative_to(ROOT)})")
        try:
            with working_on(record, command, variables) as lines:
                for line in lines:
                    out.write(line)
                    shown.take(line)
                    succeeded |= "DagRun Finished" in line and "state=success" in line
        finally:
            give_back_leases(record, f"{CATALOG}.{TABLE}", INDEX)
    if not succeeded:
        sys.exit(f"the DAG run did not succeed; its log is {log}")


LOGGED = re.compile(r"\s((?:plan|train|assign|build|gate|publish|error|\w+Error): .*)")
WAITS = re.compile(r"\s(index .* is being worked on by .*; waiting for it)")
STATE = re.compile(r"\bnew_state=(\w+)")
ENDED = {"success": "done", "up_for_retry": "failed, and will be tried again"}


class Shown:
    """What the terminal shows of the DAG run's log."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._state = self._waits = ""

    def take(self, line: str) -> None:
        """Print a line that says what was done or is waited for, and one for each task's end."""
        found = STATE.search(line)
        self._state = found[1] if found else self._state
        if "[DAG TEST] end task" in line and self._state != "up_for_reschedule":
            name = line.split("task_id=")[1].split()[0]
            index = line.split("map_index=")[1].split()[0]
            ended = ENDED.get(self._state, self._state)
            suffix = "" if index == "-1" else f"[{index}]"
            seconds = time.monotonic() - self._began
            print(f"   {seconds:6.1f} s  {name}{suffix} {ended}", flush=True)
        if found := LOGGED.search(line):
            self._say(found[1])
        elif (found := WAITS.search(line)) and found[1] != self._waits:
            self._waits = found[1]
            self._say(
                f"{self._waits}, or until it has shown no sign of life for "
                f"{settings().lease_idle_seconds / 60:.0f} minutes"
            )

    def _say(self, told: str) -> None:
        told = told.split(" [", 1)[0]
        print(textwrap.fill(told, 100, initial_indent=" " * 13, subsequent_indent=" " * 15))
        sys.stdout.flush()


def show(arguments: list[str], variables: dict[str, str]) -> None:
    """Have a command of puffin-ann print; an interrupt is told once, by the demo alone."""
    subprocess.run(["puffin-ann", *arguments], env=variables, check=True, start_new_session=True)


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
    log, name = local / "demo.log", f"{CATALOG}.{TABLE}"
    with one_at_a_time(local / "demo.run") as record:
        with migrating(variables, log):
            create_table()
        give_back_leases(record, name, INDEX)
        run_dag(variables, log, record)
    step("what is published")
    show(["status", name, INDEX], variables)
    step("the ten nearest words, searched through the published Puffin file")
    keys = [argument for word in WORDS for argument in ("--key", f"word={word}")]
    show(["search", name, INDEX, *keys, "--k", "10", "--columns", "word"], variables)
    took = f"{time.monotonic() - began:.0f} s after setup"
    step(f"done in {took}; try `make up`, or: source .local/env")
    exports = ("PYICEBERG_HOME", "PUFFIN_ANN_CACHE_DIR")
    lines = [f"export {key}={variables[key]}" for key in exports]
    (local / "env").write_text("\n".join([*lines, f"export PATH={ROOT}/.venv/bin:$PATH", ""]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGHUP, lambda number, _: sys.exit(128 + number))
    with ended_by_interrupts():
        main()
