"""Coverage-guided fuzzing of declarations: refused in a sentence, or read the same once more.

    make fuzz PART=declarations SECONDS=60

An input is the text of a declaration file.
"""

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import atheris

from tests.support.falsified.guided_fuzzing import MEMORY, fuzz

with atheris.instrument_imports(include=["puffin_ann.declaration", "yaml"]):
    from puffin_ann.declaration import IndexDeclaration, load_declaration, parse_declaration
    from puffin_ann.errors import DeclarationError
    from puffin_ann.settings import settings

VALUES = (
    *("0", "-1", "1e999", ".nan", "2026-02-31", "~", "yes", "0x10", "1_000", "'\\u202e'", "[1]"),
    *("{a: b}", "{<<: *a}", "&a [*a]", "!!binary x", "!!timestamp x", "!!set {a}", "@daily", "|"),
    *("9" * 400, '"\\x1b]52;c;eA==\\a"', "[red]", "../../x", "a.b.c", "s3://k:v@host/x", "? x"),
)


def read(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=MEMORY, suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            declaration = load_declaration(Path(file.name))
        except DeclarationError:
            return
    # No dump of a declaration has what concerns Spark: it is never stored.
    dumped = json.loads(declaration.model_dump_json(by_alias=True))
    dumped["spark"] = declaration.spark.model_dump(mode="json")
    assert parse_declaration(dumped, source=file.name) == declaration


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change a line, mostly its value, and sometimes any bytes."""
    rng = random.Random(seed)
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines or rng.random() < 0.3:
        return atheris.Mutate(data, most)
    at = rng.randrange(len(lines))
    way = rng.random()
    if way < 0.6:
        key, colon, _ = lines[at].partition(":")
        lines[at] = f"{key}{colon} {rng.choice(VALUES)}"
    elif way < 0.7:
        lines[at] = rng.choice((" ", "  ", "\t", "- ", "? ")) + lines[at]
    elif way < 0.8:
        lines.insert(at, rng.choice(lines))
    elif way < 0.9:
        del lines[at]
    else:
        lines[at] = f"{rng.choice(FIELDS)}: {rng.choice(VALUES)}"
    return "\n".join(lines).encode("utf-8", "replace")[:most]


FIELDS = tuple(IndexDeclaration.model_fields)


def seeds() -> Iterator[bytes]:
    """The declarations we ship, and one that gives every field."""
    for path in settings().declarations_dir[0].glob("*.yaml"):
        yield path.read_bytes()
    smallest = {"name": "words", "table": "a.b.c", "column": "embedding"}
    whole = parse_declaration(smallest, source="seed").model_dump_json(by_alias=True)
    yield "\n".join(
        f"{key}: {json.dumps(value)}" for key, value in json.loads(whole).items()
    ).encode()


if __name__ == "__main__":
    fuzz(read, seeds(), mutate)
