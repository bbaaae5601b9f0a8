"""Runs what a page of the documentation shows, in order, as its reader would.

| block | is |
|---|---|
| `console` | commands after `$ `, each with the output that is shown under it, if any |
| `yaml` or `python` with `title="FILE"` | written to that file |
| `python` | run by itself; a `text` block right under it is what it prints |

What a command exports stays for those below. In what is shown as printed, `...` stands for whatever
differs from run to run; spaces are compared as one. A comment `<!-- run` has commands that a reader
need not see: what a page begins with, or breaks. Other blocks are not run.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$"
    r"(?:\n+```text\n(?P<prints>.*?)^```$)?"
    r"|^<!-- run\n(?P<unseen>.*?)^-->$",
    re.M | re.S,
)
EXPORT = re.compile(r"export (\w+)=(\S+)")
SECONDS = 300
COMPILED = "WARNING puffin_ann.kernels: "
COMPILED_LINE = re.compile(f"^{COMPILED}.*\n", re.M)
"""What a reader sees who did not call `puffin-ann compile` before, as the pages say to."""


@dataclass(frozen=True)
class Block:
    """One block of a page that does something."""

    kind: str
    text: str
    title: str | None
    prints: str | None


@dataclass(frozen=True)
class Command:
    """One command of a `console` block, and the output that is shown, if any is."""

    line: str
    prints: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that are run or written, in order."""
    for found in BLOCK.finditer(page):
        kind, title = found["kind"], found["title"]
        if found["unseen"]:
            yield Block("unseen", found["unseen"], None, None)
        elif kind in ("console", "python") or title:
            yield Block(kind, found["text"], title, found["prints"])


def commands(text: str) -> list[Command]:
    """Return the commands of a `console` block; a line that ends with a backslash goes on."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines(keepends=True)
        length = 1
        while lines[length - 1].rstrip("\n").endswith("\\"):
            length += 1
        found.append(Command("".join(lines[:length]).strip(), "".join(lines[length:])))
    return found


def is_printed(shown: str, printed: str) -> bool:
    """Return whether output is what a page shows, but for what it leaves open."""
    pieces = [re.escape(_one_space(piece)) for piece in re.split(r"\s*\.{3}\s*", shown)]
    return re.fullmatch(".*?".join(pieces), _one_space(printed), re.S) is not None


def run_page(page: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a page in a folder.

    Raises:
        AssertionError: a command ends otherwise, or prints otherwise, than the page shows.
    """
    environment = dict(environment)
    for block in blocks(page.read_text()):
        if block.title:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.kind == "python":
            command = Command(block.text, block.prints or "")
            _run([sys.executable, "-c", block.text], command, folder, environment)
        elif block.kind == "unseen":
            _run(["bash", "-ec", block.text], Command(block.text, ""), folder, environment)
        else:
            shown = commands(block.text)
            assert shown, f"{page.name} has a console block without a command"
            for command in shown:
                exported = EXPORT.fullmatch(command.line)
                if exported:
                    environment[exported[1]] = exported[2].replace("$PWD", str(folder))
                else:
                    _run(["bash", "-c", command.line], command, folder, environment)


def _run(
    arguments: list[str], command: Command, folder: Path, environment: Mapping[str, str]
) -> None:
    """Run one command, and hold it to what is shown of it."""
    ended = subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **environment, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    told = f"$ {command.line}\n{ended.stdout}"
    assert ended.returncode == 0, f"{told}\nexit code {ended.returncode}"
    if command.prints.strip():
        printed = (
            ended.stdout if COMPILED in command.prints else COMPILED_LINE.sub("", ended.stdout)
        )
        assert is_printed(command.prints, printed), f"{told}\nis not\n{command.prints}"


def _one_space(text: str) -> str:
    """Return text with each run of white space as one space, and none at lines' ends."""
    return re.sub(r"\s+", " ", text)
