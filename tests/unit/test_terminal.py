"""What others wrote is printed as it stands, and no terminal obeys it."""

import io
import logging

import pytest
from rich.table import Table as Grid
from rich.text import Text
from typer.testing import CliRunner

from puffin_ann.cli import output
from puffin_ann.cli.app import app
from puffin_ann.errors import FormatError
from puffin_ann.puffin import PuffinWriter
from puffin_ann.terminal import LiteralConsole, LiteralFormatter, printable

HOSTILE = {
    "clipboard": "\x1b]52;c;eA==\x07",
    "title": "\x1b]0;owned\x1b\\",
    "colour": "\x1b[31m",
    "one byte for an escape sequence": "\x9b31m",
    "over the line before": "\r\x1b[2K",
    "backwards": "\u202egpj.exe",
    "isolated": "\u2067abc\u2069",
    "end of a line": "a\u2028b",
    "half a character": "\ud800",
}
OBEYED = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2067\u2069\u2028\ud800"}
OBEYED -= {"\n"}


def obeyed(text: str) -> set[str]:
    return OBEYED & set(text)


def printed(*things: object, **options) -> str:
    out = io.StringIO()
    LiteralConsole(file=out, width=100, **options).print(*things)
    return out.getvalue()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_in_a_text_is_obeyed_wherever_it_stands(text):
    grid = Grid(title=f"t{text}")
    grid.add_column(f"c{text}")
    grid.add_row(f"r{text}")
    grid.add_row(Text(f"x{text}"))
    for thing in (f"s{text}", Text(f"x{text}"), grid):
        assert not obeyed(printed(thing))
    assert not obeyed(printable(text))
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "said %s", (text,), None)
    assert not obeyed(LiteralFormatter("%(message)s").format(record))


@pytest.mark.parametrize(
    ("told", "width"),
    [
        *(("20", 20), ("0120", 120)),
        *((told, 80) for told in ("0", "19", "-5", "", "wide", "\u00b2", "9" * 5000)),
    ],
)
def test_a_width_in_which_nothing_can_be_printed_is_not_believed(monkeypatch, told, width):
    monkeypatch.setenv("COLUMNS", told)
    console = LiteralConsole(file=io.StringIO())
    monkeypatch.setattr("rich.console._STD_STREAMS", ())
    assert console.width == width


def test_lines_tabs_and_what_rich_itself_colours_stay():
    assert printable("a\tb\r\nc") == "a\tb\nc"
    assert "\x1b[31m" in printed(Text("red", "red"), force_terminal=True, color_system="standard")


@pytest.mark.parametrize("text", ["[/foo]", "[red]i4.puffin", ":smile:", "[link=x]y[/link]"])
def test_markup_is_no_markup(text):
    grid = Grid(title=text)
    grid.add_column(text)
    grid.add_row(text)
    assert printed(text).strip() == text
    assert printed(grid).count(text) == 3


def test_errors_and_warnings_are_printed_literally(capsys):
    output.errors_to(out := io.StringIO(), FormatError("[/b]\x1b]0;owned\x07"))
    output.warn("[/b]\x9b31m")
    output.tell("[/b]\x9b31m")
    said = capsys.readouterr().err
    assert "[/b]" in out.getvalue()
    assert said.count("[/b]") == 2
    assert not obeyed(out.getvalue() + said)


def test_a_file_of_hostile_names_is_inspected(tmp_path):
    path = tmp_path / "[red]i4.puffin"
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        properties = {"[/a]": "\x1b]52;c;eA==\x07"}
        writer.add(
            "[/foo]", b"x", fields=[1], snapshot_id=1, sequence_number=1, properties=properties
        )
        writer.finish({"[/c]": "\u202e"})
    path.write_bytes(out.getvalue())
    done = CliRunner().invoke(app, ["inspect", str(path)])
    assert done.exit_code == 0, done.exception
    assert not obeyed(done.output)
    for name in ("[red]i4.puffin", "[/foo]", "[/a]", "[/c]"):
        assert name in done.output
