"""Write a suggested declaration as a file that a person can go on with."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from puffin_ann.declaration import IndexDeclaration, load_declaration, parse_declaration
from puffin_ann.errors import BadInputError, EnvironmentProblemError
from puffin_ann.lifecycle.declare.suggest import Line

COMMENT_COLUMN = 32


def as_yaml(lines: Sequence[Line]) -> str:
    """Return a declaration file: a line for each field, with its reason as a comment."""
    given = [
        (yaml.safe_dump({line.field: line.value}, allow_unicode=True, width=10_000).strip(), line)
        for line in lines
    ]
    wide = min(COMMENT_COLUMN, max(len(text) for text, _ in given))
    return "".join(f"{text:{wide}}  # {_plain(line.reason)}\n" for text, line in given)


def write(lines: Sequence[Line], path: Path) -> IndexDeclaration:
    """Write a declaration into a new file.

    Args:
        lines: its fields.
        path: of the file, which ends in `.yaml`, since others are not found; its folder is made if
            it is not there.

    Raises:
        BadInputError: the file is there already, or would not be found.
        DeclarationError: a value is not allowed; nothing is written.
        EnvironmentProblemError: it cannot be written.
    """
    if path.suffix != ".yaml":
        raise BadInputError(
            f"{path} would not be found, since declarations are *.yaml files: write to "
            f"{path / lines[0].value}.yaml, for one"
        )
    parse_declaration({line.field: line.value for line in lines}, source=str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(as_yaml(lines))
    except FileExistsError:
        raise BadInputError(f"{path} is there already: remove it, or write to another") from None
    except OSError as error:
        raise EnvironmentProblemError(f"{path} cannot be written: {error.strerror}") from None
    return load_declaration(path)


def _plain(reason: str) -> str:
    """Return a reason on one line: names of columns may hold anything."""
    return " ".join(reason.split())
