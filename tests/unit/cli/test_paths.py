"""An empty path is a variable that was not set: no command takes it for a folder."""

import inspect
import os

import pytest
from typer.testing import CliRunner

from puffin_ann.cli import app as application


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["inspect", ""], "file"),
        (["check", ""], "FOLDER"),
        (["search", "a.b.c", "words", "--vector", ""], "--vector"),
        (["evaluate", "words", "--vector", ""], "--vector"),
        (["quickstart", ""], "FILE"),
        (["quickstart", "words.parquet", "--to", ""], "--to"),
        (["compile", "--to", ""], "--to"),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused_by_the_name_of_the_argument(
    tmp_path, monkeypatch, arguments, name
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(application.app, arguments)
    assert done.exit_code == 2
    assert f"Invalid value for '{name}': it is empty" in done.output
    assert os.listdir(tmp_path) == []


def test_no_command_takes_a_path_otherwise():
    for command in application.app.registered_commands:
        for parameter in inspect.signature(command.callback).parameters.values():
            if "Path" in str(parameter.annotation.__args__):
                (told,) = parameter.annotation.__metadata__
                assert told.parser is not None, (command.name, parameter.name)
