import logging
import os
import subprocess
import sys
import time

import pytest

from puffin_ann.cli.spark_stderr import STDERR, held_back, is_told

SPEAKER = """
import sys
print("early", file=sys.stderr, flush=True)
print("up", flush=True)
sys.stdin.readline()
print("late", file=sys.stderr, flush=True)
"""


def speak() -> subprocess.Popen:
    """Start a process that has said 'early' when this returns, and says 'late' when told to."""
    child = subprocess.Popen(
        [sys.executable, "-c", SPEAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def said(capfd, word: str) -> str:
    """What reached the standard error stream until a word did."""
    text, deadline = "", time.monotonic() + 10
    while word not in text and time.monotonic() < deadline:
        text += capfd.readouterr().err
    return text


def test_what_a_child_says_while_it_starts_is_held_back_and_the_rest_passed_on(capfd):
    with held_back():
        child = speak()
    child.communicate("\n")
    assert said(capfd, "late") == "late\n"


def test_what_was_held_back_is_shown_if_the_start_fails(capfd):
    started = []

    def start():
        with held_back():
            started.append(speak())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        start()
    assert said(capfd, "early") == "early\n"
    started[0].communicate("\n")


def test_nothing_is_told_of_a_start_that_is_interrupted(capfd):
    started = []

    def start():
        with held_back():
            started.append(speak())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    os.write(STDERR, b"shell\n")
    started[0].communicate("\n")
    assert said(capfd, "shell") == "shell\n"


def test_the_stream_is_as_it_was_afterwards(capfd):
    with held_back():
        os.write(STDERR, b"inside\n")
    os.write(STDERR, b"after\n")
    assert said(capfd, "after") == "after\n"


def test_what_an_interrupt_broke_off_is_not_logged(caplog):
    while_shut_down = BrokenPipeError()
    while_shut_down.__context__ = KeyboardInterrupt()
    caplog.handler.addFilter(is_told)
    for error in (KeyboardInterrupt(), ValueError(), while_shut_down, None):
        logging.getLogger("py4j").error("told", exc_info=error)
    caplog.handler.removeFilter(is_told)
    told = [one.exc_info and type(one.exc_info[1]) for one in caplog.records]
    assert told == [ValueError, None]
