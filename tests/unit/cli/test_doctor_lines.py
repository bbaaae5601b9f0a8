"""What the doctor finds, as a terminal of 80 columns shows it."""

import io

import pytest

from puffin_ann.cli.commands.setup import doctor
from puffin_ann.lifecycle.maintain.examination.findings import Finding
from puffin_ann.lifecycle.runs.doctor import Diagnosis
from puffin_ann.search.version.versions import how_to_build_again
from puffin_ann.terminal import LiteralConsole

FILE = "s3://warehouse/shop/words/metadata/ann-words-4546469910130237562-949cbba7-n1.puffin"
WHAT = "the file is registered, and is gone from the store, so no search can be answered from it"
REMEDY = how_to_build_again("words")
FOUND = Diagnosis(
    table="lake.shop.words",
    findings=(
        Finding(kind="dangling", indexes=("words",), file=FILE, what=WHAT, remedy=REMEDY),
        Finding(kind="unbuilt", indexes=("more",), file="", what="w", remedy="r", is_problem=False),
    ),
)


def shown(monkeypatch, width: int) -> list[str]:
    console = LiteralConsole(file=io.StringIO(), width=width)
    for module in ("puffin_ann.cli.commands.setup.doctor", "puffin_ann.cli.output"):
        monkeypatch.setattr(f"{module}.console", console)
    doctor._show_diagnosis(FOUND)
    return console.file.getvalue().splitlines()


def test_eighty_columns_have_lines_of_whole_words_and_no_table(monkeypatch):
    lines = shown(monkeypatch, 80)
    assert lines[0] == "indexes of lake.shop.words"
    assert lines[1] == "dangling words"
    assert max(map(len, lines)) <= 80
    assert "│" not in "".join(lines)
    assert all(line.startswith("    ") for line in lines[2:] if line not in ("(unbuilt) more",))
    told = " ".join(line.strip() for line in lines)
    assert WHAT in told
    assert f"remedy: {REMEDY}" in told
    assert FILE in told.replace(" ", "")
    assert "nothing is wrong" not in told


@pytest.mark.parametrize("width", [150, 200])
def test_a_wide_terminal_has_a_table(monkeypatch, width):
    assert "│" in "".join(shown(monkeypatch, width))
