"""Ctrl-C ends a command at any moment: exit code 130, and no process is left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.lifecycle import builds

PATIENCE = 120.0
"""Seconds; far more than anything here takes."""


def children_of(process: int) -> list[int]:
    """Return the processes that any thread of a process started and that are there."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def is_java(process: int) -> bool:
    return Path(f"/proc/{process}/exe").resolve().name == "java"


def heard() -> None:
    """Have a process be interrupted also where this one was started so that it is not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(found):
    """Return what is found once it is true."""
    until = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return value


def descendants_of(process: int) -> list[int]:
    mine = children_of(process)
    return [*mine, *(pid for child in mine for pid in descendants_of(child))]


def is_at_work(process: int) -> bool:
    """Tell whether a process is there that has not ended, waited for by its parent or not."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in status


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )


@pytest.fixture
def declared(words, tmp_path):
    """The file of a declared index."""
    path = tmp_path / "declared.yaml"
    path.write_text(yaml.safe_dump(builds.declaration().model_dump(mode="json")))
    return path


@pytest.mark.long
def test_no_jvm_is_left_behind_where_the_start_of_spark_is_interrupted(declared):
    command = start("-m", "puffin_ann.cli.main", "build", str(declared))
    java = wait_for(lambda: [pid for pid in children_of(command.pid) if is_java(pid)])
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 130, said
    assert "Traceback" not in said
    assert not is_at_work(java[0])


TASKS = """
import logging, sys, time
from pathlib import Path
from puffin_ann.cli import app, main
from puffin_ann.cli.spark_session import on_spark
from puffin_ann.declaration import load_declaration


def work(folder):
    Path(folder, "at work").touch()
    time.sleep(600)


def command():
    app.options(version=False, verbose=False)
    with on_spark(load_declaration(Path(sys.argv[1])), "local[1]") as runner:
        runner.run(work, [str(Path(sys.argv[1]).parent)])


app.run = command
main.run()
"""


@pytest.mark.long
def test_an_interrupt_while_tasks_are_at_work_ends_them_and_spark_with_one_line(declared):
    program = declared.parent / "program.py"
    program.write_text(TASKS)
    command = start(str(program), str(declared))
    wait_for((declared.parent / "at work").exists)
    began = [command.pid, *descendants_of(command.pid)]
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=PATIENCE)[1]
    assert (command.returncode, said) == (130, "interrupted\n")
    wait_for(lambda: not any(is_at_work(pid) for pid in began))
