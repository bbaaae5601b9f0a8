"""Refreshes in processes that are killed: run as a program, it starts one for each line it reads.

A line names the run, the index and the moment: the number of the event before which the process is
killed by SIGKILL, or a number of seconds. Events are what others can see: an object that appears in
the store, and a commit. For each line it prints how the process ended, and the events it had seen.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a refresh ended.

    Attributes:
        code: exit code; `KILLED` if it was killed.
        events: seen before that.
        result: of `refresh_in_process`, if it came to its end.
    """

    code: int
    events: int
    result: dict[str, Any] | None


class Refreshes:
    """Starts refreshes; each is a process of its own, and all imports were made before."""

    def __init__(self, declarations: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crashing_refreshes", str(declarations)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )

    def run(
        self, index: str, run_id: str, *, event: int = 0, seconds: float = 0.0, **options: bool
    ) -> Ended:
        """Refresh; killed before the event of a number, or after some seconds, if one is given."""
        order = {"index": index, "run": run_id, "event": event, "seconds": seconds, **options}
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
        result = json.loads(lines[-1]) if lines and lines[-1] != "event" else None
        print(json.dumps({"code": code, "events": events, "result": result}), flush=True)


def _child(folder: Path, order: dict[str, Any], write: int) -> None:
    from puffin_ann.declaration import load_declaration
    from puffin_ann.lifecycle.runs import in_process
    from puffin_ann.lifecycle.runtime import leases

    def note(text: str) -> None:
        os.write(write, f"{text}\n".encode())

    _kill_at(order["event"], note)
    if order["seconds"]:
        timer = threading.Timer(order["seconds"], os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    try:
        declared = load_declaration(folder / f"{order['index']}.yaml")
        with leases.writing(declared.table, declared.name, order["run"], "refresh"):
            done = in_process.refresh_in_process(
                declared,
                run_id=order["run"],
                maintenance=order.get("maintenance", False),
                force=True,
            )
        note(json.dumps(done))
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _kill_at(number: int, note: Callable[[str], None]) -> None:
    """Count what others can see of this process, and kill it before the event of that number."""
    from puffin_ann.lake.commit import commit_index_file
    from puffin_ann.lake.store.staging import StagedWriter, Staging
    from puffin_ann.lifecycle.publish import assemble as lifecycle_publish

    seen = 0

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            note("event")
            return original(*args, **kwargs)

        return counted

    Staging.put_new = before(Staging.put_new)
    Staging.delete_tree = before(Staging.delete_tree)
    StagedWriter.close = before(StagedWriter.close)
    lifecycle_publish.commit_index_file = before(commit_index_file.commit_index_file)
    lifecycle_publish.store = before(lifecycle_publish.store)


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
