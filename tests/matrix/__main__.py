"""`make test-matrix`: install the wheel beside the versions that people have, and try it there.

By itself: `python -m tests.matrix [CELL ...]`, or with the variable ONLY=CELL,CELL. UV names uv;
PYTHON and PYTHON_NEWEST name interpreters.

Each cell is an environment of its own. What was run, and how far, is written to the table of
docs/compatibility.md; it stands for no other combination.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "compatibility.md"
HERE = ROOT / "tests" / "matrix"
FOLDER = ROOT / ".local" / "matrix"
OLD, NEW = os.environ.get("PYTHON", "python3.11"), os.environ.get("PYTHON_NEWEST", "python3.13")
UV = os.environ.get("UV", "uv")

NAMED = ("apache-airflow", "pyspark", "pyspark-client", "pyiceberg", "numba", "numpy", "pyarrow")
"""Packages whose versions the table shows."""


@dataclass(frozen=True)
class Cell:
    """An environment, and what is tried in it.

    Attributes:
        name: of the environment.
        python: its interpreter.
        extras: of the wheel.
        packages: what is installed with it, in which versions.
        trial: a script beside this file, which the environment's Python runs.
        before: day of what is installed; a release of Airflow is tried with what there was when
            its constraints were made.
    """

    name: str
    python: str
    extras: str
    packages: tuple[str, ...]
    trial: str
    before: str = ""


CELLS = (
    Cell("airflow-3.1", NEW, "airflow", ("apache-airflow==3.1.8",), "try_airflow", "2026-03-15"),
    Cell("airflow-3.2", NEW, "airflow", ("apache-airflow==3.2.2",), "try_airflow", "2026-06-15"),
    Cell("airflow-3.3", NEW, "airflow", ("apache-airflow==3.3.2",), "try_airflow"),
    Cell("pyspark-3.5", OLD, "cli,spark", ("pyspark==3.5.*",), "try_spark"),
    Cell("pyspark-4.0", NEW, "cli,spark", ("pyspark==4.0.*",), "try_spark"),
    Cell("pyspark-4.1", NEW, "cli,spark", ("pyspark==4.1.*",), "try_spark"),
    Cell(
        "airflow-and-spark",
        NEW,
        "airflow,cli,spark",
        ("apache-airflow==3.3.2", "pyspark==4.1.3", "pyspark-client==4.1.3"),
        "try_spark",
    ),
    Cell("search", NEW, "", (), "try_search"),
)
FAR = {
    "try_airflow": "DAG file with a folder beside it, a DAG on an index's Asset, metrics, plugin, "
    "provider, sensors; DAGs serialise",
    "try_spark": "a build on `local[2]`, and a search",
    "try_search": "an index built by `refresh` in this process, and a search",
}


def chosen_cells(arguments: list[str] | None = None) -> list[str]:
    """Return the names of the cells that the command line and ONLY choose; none: all."""
    names = [cell.name for cell in CELLS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cells", metavar="CELL", nargs="*", help=f"{', '.join(names)}; none: all")
    given = parser.parse_args(arguments).cells
    found = [*given, *filter(None, os.environ.get("ONLY", "").split(","))]
    if unknown := [name for name in found if name not in names]:
        parser.error(f"no cell {unknown[0]!r}; there are {', '.join(names)}")
    if shutil.which(UV) is None:
        parser.error(
            f"there is no {UV!r}: run `make test-matrix`, which brings uv, or set UV to one"
        )
    return found


def main(chosen: list[str]) -> int:
    """Run the cells that are chosen, or all; return how many failed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel = built_wheel()
    failed = 0
    for cell in CELLS:
        if chosen and cell.name not in chosen:
            continue
        row = run(cell, wheel)
        failed += "failed" in row
        write({**known_rows(), cell.name: row})
    return failed


def built_wheel() -> Path:
    """Build the wheel, as it would be published."""
    place = FOLDER / "dist"
    shutil.rmtree(place, ignore_errors=True)
    options = ("--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable)
    subprocess.run([UV, "build", *options, "--out-dir", str(place), str(ROOT)], check=True)
    return next(place.glob("*.whl"))


def run(cell: Cell, wheel: Path) -> str:
    """Install a cell, try it, and remove it; return its row of the table."""
    place = FOLDER / cell.name
    shutil.rmtree(place, ignore_errors=True)
    print(f"== {cell.name}", flush=True)
    try:
        return _tried(cell, wheel, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _tried(cell: Cell, wheel: Path, place: Path) -> str:
    python = place / "venv" / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", cell.python, place / "venv"], check=True)
    wanted = f"{wheel}[{cell.extras}]" if cell.extras else str(wheel)
    until = ("--exclude-newer", cell.before) if cell.before else ()
    # As a user would, elsewhere: this project's own settings for uv leave `pyspark-client` out.
    command = [UV, "pip", "install", "--no-config", "--quiet", "--python", str(python), *until]
    began = time.monotonic()
    installed = subprocess.run([*command, wanted, *cell.packages], check=False)
    seconds = time.monotonic() - began
    size = sum(path.lstat().st_size for path in place.rglob("*") if path.is_file()) / 1e6
    left = installed.returncode or tried(cell, place, python)
    outcome = FAR[cell.trial] if left == 0 else "**failed**"
    day = f", as of {cell.before}" if cell.before else ""
    print(f"   {outcome}", flush=True)
    return (
        f"| {cell.name}{day} | `puffin-ann{f'[{cell.extras}]' if cell.extras else ''}` | "
        f"{versions(python)} | {size:,.0f} MB, {seconds:.0f} s | {outcome} |"
    )


def tried(cell: Cell, place: Path, python: Path) -> int:
    """Run a cell's trial in its environment; return its exit code."""
    return subprocess.run(
        [python, HERE / f"{cell.trial}.py", place / "work"],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(place / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        },
        cwd=place,
        check=False,
    ).returncode


def versions(python: Path) -> str:
    """Return the versions of Python and of the packages that the table shows."""
    listed = subprocess.run(
        [UV, "pip", "list", "--quiet", "--format", "freeze", "--python", str(python)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("==") for line in listed.stdout.splitlines() if "==" in line)
    told = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    return ", ".join(
        [told.stdout.strip(), *(f"{name} {found[name]}" for name in NAMED if name in found)]
    )


def known_rows() -> dict[str, str]:
    """Return the rows that the document has, by the names of their cells."""
    lines = re.findall(r"^\| ([\w.-]+).*\|$", DOCUMENT.read_text(), re.MULTILINE)
    names = {cell.name for cell in CELLS}
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    return {
        name: row
        for name in lines
        if name in names
        for row in rows
        if re.match(rf"\| {re.escape(name)}[ ,]", row)
    }


def write(rows: dict[str, str]) -> None:
    """Put the rows into the document, in the order of the cells."""
    table = "\n".join(rows[cell.name] for cell in CELLS if cell.name in rows)
    text = DOCUMENT.read_text()
    columns = ("cell", "installed", "versions", "size, time to install", "what was run")
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    begin, end = "<!-- cells -->\n", "<!-- /cells -->"
    before, _, rest = text.partition(begin)
    DOCUMENT.write_text(f"{before}{begin}{head}{table}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    sys.exit(main(chosen_cells()))
