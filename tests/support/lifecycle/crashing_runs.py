"""Runs in processes that are killed: run as a program, it starts one for each line it reads.

A line names the work, the run, the index and the moment: the number of the event before which the
process is killed by SIGKILL, or a number of seconds. Events are what others can see: an object that
appears in the store or goes, and a commit, before and after its metadata file is written. For each
line it prints how the process ended, and the events it had seen.
"""

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code; `KILLED` if it was killed.
        events: seen before that.
        result: of a refresh, if it came to its end.
        error: name of the class of what it raised; empty if it raised nothing.
    """

    code: int
    events: int
    result: dict[str, Any] | None
    error: str = ""


class Runs:
    """Starts runs; each is a process of its own, and all imports were made before."""

    def __init__(self, declarations: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lifecycle.crashing_runs", str(declarations)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )

    def run(
        self,
        index: str,
        run_id: str,
        *,
        work: str = "refresh",
        event: int = 0,
        seconds: float = 0.0,
        **options: Any,
    ) -> Ended:
        """Run; killed before the event of a number, or after some seconds, if one is given.

        Args:
            index: name of the index, of which there is a declaration in the folder.
            run_id: names the run, where such work has a name.
            work: one of `WORK`.
            event: 0: none.
            seconds: 0: never.
            options: of the work.
        """
        moment = {"event": event, "seconds": seconds}
        order = {"index": index, "run": run_id, "work": work, "options": options, **moment}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the program."""
        self._process.stdin.close()
        self._process.wait(60)


def main(folder: Path) -> None:
    from puffin_ann.settings import configure_numba

    configure_numba()
    importlib.import_module("puffin_ann.lifecycle.runs.refresh")  # once, for all processes

    for line in sys.stdin:
        order = json.loads(line)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(folder, order, write)
        os.close(write)
        with os.fdopen(read) as answers:
            lines = answers.read().splitlines()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        events = sum(line == "event" for line in lines)
        said = json.loads(lines[-1]) if lines and lines[-1] != "event" else {}
        print(json.dumps({"code": code, "events": events, "result": None, **said}), flush=True)


def _child(folder: Path, order: dict[str, Any], write: int) -> None:
    from puffin_ann.declaration import load_declaration

    def note(text: str) -> None:
        os.write(write, f"{text}\n".encode())

    _kill_at(order["event"], note)
    if order["seconds"]:
        timer = threading.Timer(order["seconds"], os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    try:
        declared = load_declaration(folder / f"{order['index']}.yaml")
        done = WORK[order["work"]](declared, order["run"], **order["options"])
        note(json.dumps({"result": done}))
    except BaseException as error:
        import traceback

        traceback.print_exc()
        note(json.dumps({"error": type(error).__name__}))
        os._exit(1)
    os._exit(0)


def _refresh(declared: Any, run_id: str, *, maintenance: bool = False) -> dict[str, Any]:
    from puffin_ann.lifecycle.runs import in_process
    from puffin_ann.lifecycle.runtime import leases

    with leases.writing(declared.table, declared.name, run_id, "refresh"):
        return in_process.refresh_in_process(
            declared, run_id=run_id, maintenance=maintenance, force=True
        )


def _build(declared: Any, run_id: str) -> None:
    from puffin_ann.lifecycle.runtime import leases
    from tests.support.lifecycle import builds

    with leases.writing(declared.table, declared.name, run_id, "build"):
        builds.build(declared, run_id, {"force": True})


def _gather(declared: Any, _run_id: str) -> None:
    from puffin_ann.lifecycle.maintain.gather import gather

    gather(declared.table, declared.name)


def _guard(declared: Any, _run_id: str) -> None:
    from puffin_ann.lifecycle.maintain.guard import guard

    guard(declared.table, [declared])


def _clean(declared: Any, _run_id: str, *, at_ms: int) -> None:
    from puffin_ann.lifecycle.maintain.clean import clean

    clean(declared.table, [declared], grace="0s", at_ms=at_ms)


def _drop(declared: Any, _run_id: str) -> None:
    from puffin_ann.lifecycle.maintain.drop import drop

    drop(declared.table, declared.name, [declared], force=True)


def _rename(declared: Any, _run_id: str, *, before: str) -> None:
    from puffin_ann.lifecycle.maintain.rename import rename

    rename(before, declared, [declared])


WORK: Mapping[str, Callable[..., Any]] = {
    "build": _build,
    "refresh": _refresh,
    "gather": _gather,
    "guard": _guard,
    "clean": _clean,
    "drop": _drop,
    "rename": _rename,
}


def _kill_at(number: int, note: Callable[[str], None]) -> None:
    """Count what others can see of this process, and kill it before the event of that number."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from puffin_ann.lake.commit.tagged_snapshot import TaggedSnapshot
    from puffin_ann.lake.store.assemble.compose import Assembly
    from puffin_ann.lake.store.staging import StagedWriter, Staging

    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        note("event")

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            count()
            return original(*args, **kwargs)

        return counted

    write_metadata = SqlCatalog._write_metadata

    def written(*args: Any, **kwargs: Any) -> None:
        write_metadata(*args, **kwargs)
        count()

    Staging.put_new = before(Staging.put_new)
    Staging.put = before(Staging.put)
    Staging.delete_tree = before(Staging.delete_tree)
    StagedWriter.close = before(StagedWriter.close)
    Assembly.make = before(Assembly.make)
    TaggedSnapshot.write = before(TaggedSnapshot.write)
    PyArrowFileIO.delete = before(PyArrowFileIO.delete)
    SqlCatalog.commit_table = before(SqlCatalog.commit_table)
    SqlCatalog._write_metadata = staticmethod(written)


@contextmanager
def searching(search: Callable[[], None]) -> Iterator[list[int]]:
    """Search over and over while the body runs; what fails there fails here."""
    ended = threading.Event()
    counted, failed = [0], []

    def work() -> None:
        while not ended.is_set() and not failed:
            try:
                search()
                counted[0] += 1
            except BaseException as error:
                failed.append(error)
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield counted
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]


def moments(seed: int, count: int, longest: float) -> list[float]:
    """Moments at which to kill, in seconds."""
    return [random.Random(seed + number).uniform(0.01, longest) for number in range(count)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
