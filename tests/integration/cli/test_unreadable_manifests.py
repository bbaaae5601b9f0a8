"""Manifests that are gone, no files, or damaged: named, and never taken for an empty table."""

import os
import random
import sys

import pytest

from puffin_ann.cli.main import run
from puffin_ann.errors import DataFileError, EnvironmentProblemError, PuffinAnnError
from puffin_ann.lake.read.files.live_files import files_of, load_manifest_list
from puffin_ann.lifecycle.runs.doctor import doctor
from tests.support.lifecycle import builds


def gone(path):
    os.remove(path)


def directory(path):
    os.remove(path)
    os.mkdir(path)


def empty(path):
    os.truncate(path, 0)


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def junk(path):
    with open(path, "r+b") as file:
        file.write(b"\xff" * 64)


FILES = ("manifest", "manifest list")


def path_of(table, what):
    """Return the path of the head's manifest list, or of its newest manifest."""
    head = table.refresh().current_snapshot()
    uri = (
        head.manifest_list if what == "manifest list" else head.manifests(table.io)[0].manifest_path
    )
    return uri.removeprefix("file://")


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize(
    ("harm", "error", "said"),
    [
        (gone, EnvironmentProblemError, "is gone from the store"),
        (directory, EnvironmentProblemError, "cannot be read"),
        (empty, DataFileError, "is not a readable"),
        (cut, DataFileError, "is not a readable"),
        (junk, DataFileError, "is not a readable"),
    ],
)
def test_they_are_named_with_what_they_are(words, what, harm, error, said):
    path = path_of(words, what)
    harm(path)
    with pytest.raises(error, match=said) as caught:
        files_of(load_manifest_list(words))
    assert path in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize("what", FILES)
def test_any_byte_of_them_may_be_wrong(words, what):
    path, chance = path_of(words, what), random.Random(5)
    with open(path, "rb") as file:
        sound = file.read()
    refused: list[str] = []
    for _ in range(150):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with open(path, "wb") as file:
            file.write(data)
        try:
            files_of(load_manifest_list(words))
        except PuffinAnnError as error:
            refused.append(str(error))
    assert len(refused) > 20


@pytest.mark.parametrize("what", FILES)
def test_they_may_be_cut_off_anywhere(words, what):
    path = path_of(words, what)
    with open(path, "rb") as file:
        sound = file.read()
    for size in [*range(0, len(sound), 31), *range(len(sound) - 40, len(sound))]:
        with open(path, "wb") as file:
            file.write(sound[:size])
        with pytest.raises(DataFileError, match="is not a readable"):
            files_of(load_manifest_list(words))


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize(("harm", "code"), [(gone, 6), (empty, 7)])
def test_the_command_line_says_so_and_the_doctor_goes_on(
    words, monkeypatch, capsys, what, harm, code
):
    builds.build(builds.declaration(), "run")
    words.refresh().append(builds.rows([60]))  # of what is covered, no manifest is read again
    path = path_of(words, what)
    harm(path)
    monkeypatch.setattr(sys, "argv", ["puffin-ann", "status", "test.demo.words"])
    with pytest.raises(SystemExit) as left:
        run()
    said = capsys.readouterr().err
    assert (left.value.code, path in said) == (code, True)
    (finding,) = doctor(words, [builds.declaration()]).findings
    assert (finding.kind, finding.indexes) == ("stale", (builds.INDEX,))
    assert path in finding.what
