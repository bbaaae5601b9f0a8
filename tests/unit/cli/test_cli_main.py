from pathlib import Path
from pickle import UnpicklingError

import pytest

from puffin_ann import errors
from puffin_ann.cli import main


def test_a_damaged_cache_of_kernels_is_named_without_a_traceback(monkeypatch, capsys):
    def command():
        raise UnpicklingError("pickle data was truncated")

    monkeypatch.setattr(main, "app", command)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere/kernels")
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 6
    said = capsys.readouterr().err
    assert "/somewhere/kernels are damaged" in said
    assert "remove that folder" in said
    assert "Traceback" not in said


def test_the_help_and_the_readme_tell_every_exit_code():
    told = main.app.info.help.partition("Exit codes: ")[2]
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert f"Exit codes: {told}" in " ".join(readme.split())
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.exit_code for one in kinds if issubclass(one, errors.PuffinAnnError)}
    problems_found = 8  # what doctor leaves with, by itself
    assert {int(one.split()[0]) for one in told.split(", ")} == {0, problems_found, *codes}


@pytest.mark.parametrize("command", main.app.registered_commands, ids=lambda one: one.name)
def test_the_help_of_every_command_has_an_example(command):
    assert f"Example: puffin-ann {command.name} " in command.callback.__doc__
