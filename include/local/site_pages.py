"""Write the pages of the documentation that are generated, into a folder.

The fields of declarations come from their model, with what docs/declarations.md says of each; the
commands come from their own `--help`. So neither page can fall behind the code.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.declaration.index import SHAPING
from puffin_ann.declaration.json_schema import declaration_schema

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 88
LARGEST = 2**63 - 1  # which no field is really bound by
PARAMETERS_OF = {
    "VamanaParameters": "vamana",
    "HnswParameters": "hnsw",
    "IvfPqParameters": "ivf_pq",
    "CentroidParameters": "centroid",
}
FIELDS = """# Field reference

Generated from the model that declarations are checked by (`puffin-ann check --schema` prints it as
a JSON schema). A change to a field that shapes the index makes the next run build it again. What a
value means in full, with examples: [declarations.md](declarations.md).
"""
COMMANDS = """# Command reference

Generated from the commands' own `--help`. Each command but `quickstart` and `init` has `--json` for
machines. What a failure means, by exit code: [runbook](runbook.md#exit-codes).
"""


def fields_page() -> str:
    """Return the page of all fields of a declaration, as Markdown."""
    schema = declaration_schema()
    meanings = _meanings((ROOT / "docs" / "declarations.md").read_text())
    options = {
        name: _reference(field)
        for name, field in schema["properties"].items()
        if _reference(field) in schema["$defs"]
    }
    lines = [FIELDS, *_section("Fields", schema["properties"], meanings["Fields"], shapes=True)]
    for name, model in options.items():
        fields = schema["$defs"][model]["properties"]
        if name == "parameters" or not fields:
            continue
        lines += _section(f"`{name}`", fields, meanings[f"`{name}`"])
        for field, parts in _parts(fields):
            heading = f"`{name}.{field}`"
            lines += _section(heading, schema["$defs"][parts]["properties"], meanings[heading])
    for model, algorithm in PARAMETERS_OF.items():
        heading = f"`parameters` of `{algorithm}`"
        lines += _section(heading, schema["$defs"][model]["properties"], meanings[heading])
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the page of all commands, each with its help, as Markdown."""
    runner = CliRunner()
    lines = [COMMANDS]
    for command in app.registered_commands:
        asked = runner.invoke(app, [str(command.name), "--help"], terminal_width=WIDTH)
        lines += [f"## `{command.name}`", "", "```text", asked.stdout.strip(), "```", ""]
    return "\n".join(lines)


def _section(
    heading: str,
    fields: dict[str, dict[str, Any]],
    meanings: dict[str, str],
    *,
    shapes: bool = False,
) -> Iterator[str]:
    """Yield the lines of one table of fields, under its heading.

    Raises:
        KeyError: docs/declarations.md does not say what a field means.
    """
    yield f"\n## {heading}\n"
    yield "| field | default | allowed |" + (" shapes the index |" if shapes else "") + " meaning |"
    yield "|---|---|---|" + ("---|" if shapes else "") + "---|"
    for name, field in fields.items():
        cells = [f"`{name}`", _default(field), _allowed(field)]
        if shapes:
            cells.append("yes" if name in SHAPING else "no")
        yield "| " + " | ".join([*cells, meanings[name]]) + " |"


def _reference(field: dict[str, Any]) -> str:
    """Return the name of the model that a field holds, or nothing."""
    return str(field.get("$ref", "")).rpartition("/")[2]


def _parts(fields: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the fields that hold a model or nothing, each with the name of its model."""
    for name, field in fields.items():
        for kind in field.get("anyOf", ()):
            if _reference(kind):
                yield name, _reference(kind)


def _default(field: dict[str, Any]) -> str:
    """Return a field's default for a cell of a table."""
    if _reference(field):
        return "see below"
    value = field.get("default")
    if value is None or value in ([], {}):
        return "none" if "default" in field or field.get("type") == "object" else "required"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _allowed(field: dict[str, Any]) -> str:
    """Return what a field may hold, for a cell of a table."""
    if _reference(field):
        return "see below"
    if "anyOf" in field:
        kinds = [_allowed(kind) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join([*kinds, "none"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`"}.get(
        field.get("type", ""), {"array": "list", "object": "mapping"}.get(field["type"], "text")
    )
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum", field.get("exclusiveMaximum"))
    if low is not None:
        kind += f" {'above' if 'exclusiveMinimum' in field else 'from'} {low:,g}"
    if high is not None and high < LARGEST:
        kind += f" {'below' if 'exclusiveMaximum' in field else 'to'} {_plain(high)}"
    if "pattern" in field:
        pattern = field["pattern"].replace("|", "\\|")
        kind += f" like `{pattern}`"
    return kind


def _plain(number: float) -> str:
    """Return a number without an exponent."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _meanings(document: str) -> dict[str, dict[str, str]]:
    """Return, by heading and field, the last cell of the tables of docs/declarations.md."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for line in document.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(heading, {})[cells[0].strip("`")] = cells[-1]
    return found


def main() -> None:
    """Write the pages into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fields.md").write_text(fields_page())
    (folder / "commands.md").write_text(commands_page())


if __name__ == "__main__":
    main()
