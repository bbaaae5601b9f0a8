import inspect
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from puffin_ann import errors
from puffin_ann.cli import app as application
from puffin_ann.cli import interrupts, main
from puffin_ann.cli.progress import PUBLISH, steps
from puffin_ann.cli.variables import misspelled_settings
from puffin_ann.errors import ConflictError
from puffin_ann.lifecycle.runs import in_process
from tests.support.params import long_but_first
from tests.support.paths import ROOT

HERE = "tests/unit/cli/test_main.py"


def test_the_help_and_the_runbook_tell_every_exit_code():
    told = application.app.info.help.partition("Exit codes: ")[2]
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    assert f"Exit codes: {told}" in " ".join(runbook.split())
    kinds = [var for var in vars(errors).values() if isinstance(var, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.PuffinAnnError)}
    problems_found = 8  # what doctor leaves with, by itself
    assert {int(line.split()[0]) for line in told.split(", ")} == {0, problems_found, *codes}


@pytest.mark.parametrize(
    "command", application.app.registered_commands, ids=lambda command: command.name
)
def test_the_help_of_every_command_has_an_example(command):
    assert f"Example: puffin-ann {command.name} " in command.callback.__doc__


def test_the_help_says_of_every_command_what_it_does_in_a_line_that_fits():
    told = CliRunner().invoke(application.app, ["--help"], terminal_width=80).output
    for command in application.app.registered_commands:
        line = f"  {command.name:<10}  {command.short_help}"
        assert line in told.splitlines()
        assert command.short_help.endswith(".")


def test_examples_name_no_file_or_place_that_nobody_has():
    told = " ".join(command.callback.__doc__ for command in application.app.registered_commands)
    named = re.findall(r"Example: puffin-ann \S+ (.*)", told)
    assert [line for line in named if re.search(r"s3://|\.npy|abcd", line)] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("search a.b.c i --cache ful", "'ful' is not one of 'full', 'lazy', 'none'"),
        ("search a.b.c i --k x", "'x': it should be a whole number"),
        ("size --rows x", "'x': it should be a number"),
        ("size --cells 0", "'0': it should be greater than or equal to 1"),
    ],
)
def test_options_are_refused_in_words_of_the_program(arguments, told):
    done = CliRunner().invoke(application.app, arguments.split())
    option = arguments.split()[-2]
    assert done.exit_code == 2
    assert done.output.splitlines()[-1] == f"Error: Invalid value for '{option}': {told}"


SIZED = ["size", "--rows", "9", "--dim", "9", "--json"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PUFFIN_ANN_CACHEDIR", "PUFFIN_ANN_CACHE_DIR"),
        ("puffin_ann_thread", "PUFFIN_ANN_THREADS"),
        ("PUFFIN_ANN_DECLARATIONS", "PUFFIN_ANN_DECLARATIONS_DIR"),
    ],
)
def test_a_misspelled_setting_is_warned_of_once(monkeypatch, name, meant):
    monkeypatch.setenv(name, "/x")
    done = CliRunner().invoke(application.app, SIZED)
    assert done.exit_code == 0
    assert done.stderr == f"warning: {name} sets nothing; did you mean {meant}?\n"


def test_no_variable_of_ours_is_warned_of(monkeypatch):
    named = re.compile(r"\b_?PUFFIN_ANN_[A-Z_]*[A-Z]\b")
    listed = ["git", "grep", "-hoE", named.pattern, "--", ".", ":!CHANGELOG.md", f":!{HERE}"]
    told = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    variables = set(told.split())
    assert {"PUFFIN_ANN_KERNELS_DIR", "_PUFFIN_ANN_DAEMON_AHEAD"} <= variables
    for name in variables:
        monkeypatch.setenv(name, "")
    assert misspelled_settings() == {}


@pytest.mark.parametrize("module", ["puffin_ann", "puffin_ann.cli.main"])
def test_modules_that_start_the_command_line_show_the_name_of_the_program(module):
    def answer(*arguments):
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, told = answer("--help")
    assert (code, told.split()[:2]) == (0, ["Usage:", "puffin-ann"])
    code, told = answer("serch")
    assert code == 2
    assert told.startswith("Usage: puffin-ann [OPTIONS]")
    assert "Try 'puffin-ann --help'" in told


@pytest.mark.parametrize("unbuffered", long_but_first(["", "1"]))
@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "size --rows 9 --dim 9", "size --rows 9 --dim 9 --json"],
)
def test_output_on_a_full_disk_is_one_line_and_an_exit_code(monkeypatch, arguments, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "puffin_ann", *arguments.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "error: output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (errors.EnvironmentProblemError.exit_code, said)


def test_whoever_reads_only_the_beginning_of_the_output_is_told_nothing():
    command = [sys.executable, "-m", "puffin_ann", "size", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_where_errors_cannot_be_written_either_the_exit_code_tells():
    command = [sys.executable, "-m", "puffin_ann", "size"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=full, check=False)
    assert done.returncode == errors.BadInputError.exit_code


@pytest.fixture
def default_handler():
    """What Python does where a terminal started it; put back afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def leaves_with(monkeypatch, command) -> object:
    monkeypatch.setattr(application, "app", lambda prog_name: command())
    with pytest.raises(SystemExit) as ended:
        main.run()
    return ended.value.code


def heard() -> None:
    """Have a process be interrupted also where this one was started so that it is not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        ValueError('Error building "model" validator:\n  KeyboardInterrupt'),
        errors.EnvironmentProblemError("it cannot be reached"),
        SystemExit(1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_an_interrupt_turned_into_is_an_interrupt(monkeypatch, default_handler, error):
    def command():
        try:
            interrupted()
        except KeyboardInterrupt:
            raise error from None

    assert leaves_with(monkeypatch, command) == 130


def test_what_was_done_in_spite_of_an_interrupt_is_done(monkeypatch, default_handler):
    def command():
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        sys.exit(0)

    assert leaves_with(monkeypatch, command) == 0


def test_an_interrupt_that_python_drops_comes_again(monkeypatch, default_handler):
    class Dropped:
        def __del__(self):
            interrupted()

    def command():
        Dropped()
        time.sleep(PATIENCE)
        sys.exit(0)

    began = time.monotonic()
    assert leaves_with(monkeypatch, command) == 130
    assert time.monotonic() - began < PATIENCE


DROPPED_BY_ARROW = """
import os, signal, sys, time
import pyarrow as pa
from puffin_ann.cli import app, main

NAME = "pandas"  # that of a package which Arrow imports where one is installed, and does without


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == NAME and Interrupting in map(type, sys.meta_path):
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)


def command():
    bits = pa.Array.from_buffers(pa.bool_(), 4, [None, pa.py_buffer(b"\\x05")])
    sys.meta_path.insert(0, Interrupting())
    bits.to_numpy(zero_copy_only=False)
    print("dropped", flush=True)
    time.sleep(60)


app.run = command
main.run()
"""


def test_an_interrupt_that_arrow_drops_comes_again():
    command = [sys.executable, "-c", DROPPED_BY_ARROW]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, preexec_fn=heard
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "dropped\n", "interrupted\n")


def test_an_interrupt_that_is_swallowed_again_and_again_comes_until_it_is_not(
    monkeypatch, default_handler
):
    swallowed = 0

    def command():
        nonlocal swallowed
        for attempt in range(3):
            try:
                if not attempt:
                    interrupted()
                time.sleep(PATIENCE)
            except KeyboardInterrupt:
                swallowed += 1
        time.sleep(PATIENCE)

    assert (leaves_with(monkeypatch, command), swallowed) == (130, 3)


def test_an_interrupt_comes_once_where_something_is_done_about_it(monkeypatch, default_handler):
    cleared = []

    def command():
        try:
            interrupted()
        finally:
            time.sleep(5 * interrupts.AGAIN_AFTER)
            cleared.append("all of it")

    assert (leaves_with(monkeypatch, command), cleared) == (130, ["all of it"])


def test_no_interrupt_comes_after_the_command(monkeypatch, default_handler):
    def command():
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        sys.exit(0)

    before = signal.getsignal(signal.SIGALRM)
    assert leaves_with(monkeypatch, command) == 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGALRM) is before
    time.sleep(2 * interrupts.AGAIN_AFTER)


@pytest.mark.parametrize(
    ("name", "ends", "told"),
    [
        ("plan", "within", "interrupted"),
        (PUBLISH, "within", "interrupted; it came while the run published"),
        (PUBLISH, "after", "interrupted; what the run made is published"),
        (PUBLISH, "after it failed", "interrupted\n"),
    ],
)
def test_an_interrupted_run_says_whether_it_has_published(
    monkeypatch, capsys, default_handler, name, ends, told
):
    def command():
        with steps(as_json=True) as step:
            with suppress(ConflictError), step(name):
                if ends == "within":
                    interrupted()
                if ends == "after it failed":
                    raise ConflictError("others were first")
            interrupted()

    assert leaves_with(monkeypatch, command) == 130
    assert capsys.readouterr().err.startswith(told)
    interrupts.tell_interrupted("")


def test_the_steps_of_runs_have_one_that_publishes():
    assert f'step("{PUBLISH}")' in inspect.getsource(in_process)


def test_errors_without_an_interrupt_stay_what_they_are(monkeypatch, default_handler):
    def command():
        raise ValueError("of another kind")

    with pytest.raises(ValueError, match="of another kind"):
        leaves_with(monkeypatch, command)


@pytest.mark.parametrize("imported", ["typer", "pydantic._internal._fields", "puffin_ann.settings"])
def test_an_interrupt_while_modules_are_imported_ends_with_one_line(imported):
    for _ in range(ATTEMPTS):
        ended = interrupt_after(imported)
        if ended[0] not in TOO_LATE:
            break
    assert ended == (130, "", ["interrupted"])


PATIENCE = 30.0
"""Seconds; far more than anything here takes."""

ATTEMPTS = 5
TOO_LATE = (-signal.SIGINT, errors.CatalogUnavailableError.exit_code)
"""How a command ends that was at its end when a busy machine delivered the signal."""


def interrupt_after(imported):
    """Interrupt a command when it has imported a module; returns exit code, output and errors."""
    command = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "puffin_ann.cli.main", "status", "a.b.c"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    for line in command.stderr:
        if line.rpartition("|")[2].strip() == imported:
            break
    command.send_signal(signal.SIGINT)
    out, err = command.communicate()
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    return command.returncode, out, said
