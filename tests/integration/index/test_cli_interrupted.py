"""Ctrl-C ends a command at any moment: exit code 130, and no process is left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import builds
import yaml

PATIENCE = 30.0
"""Seconds; far more than anything here takes."""


def children_of(process: int) -> list[int]:
    """Return the processes that any thread of a process started and that are there."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for one in found for child in one.read_text().split()]


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


def test_no_jvm_is_left_behind_where_the_start_of_spark_is_interrupted(words, tmp_path):
    declared = tmp_path / "declared.yaml"
    declared.write_text(yaml.safe_dump(builds.declaration().model_dump(mode="json")))
    command = subprocess.Popen(
        [sys.executable, "-m", "puffin_ann.cli.main", "build", str(declared)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    java = wait_for(lambda: [one for one in children_of(command.pid) if is_java(one)])
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 130, said
    assert "Traceback" not in said
    wait_for(lambda: not Path(f"/proc/{java[0]}").exists())
