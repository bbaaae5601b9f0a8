"""Read declarations from YAML files."""

from pathlib import Path

import yaml

from puffin_ann.declaration.index import IndexDeclaration, parse_declaration
from puffin_ann.errors import DeclarationError

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C takes a sixth of the time, and every parse of a DAG file reads all declarations."""


def load_declaration(path: Path) -> IndexDeclaration:
    """Read and validate one declaration file; the name defaults to the file's stem.

    Raises:
        DeclarationError: the file is missing, is not YAML, or is not a valid declaration.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise DeclarationError(f"{path}: is not valid YAML: {error}") from None
    if isinstance(data, dict):
        data.setdefault("name", path.stem)
    return parse_declaration(data, source=str(path))


def declaration_files(folder: Path) -> list[Path]:
    """Return the declaration files of a folder, in order of name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def load_declarations(folder: Path) -> list[IndexDeclaration]:
    """Read every declaration of a folder, in order of name.

    Raises:
        DeclarationError: one of them is not valid, or two declare the same index.
    """
    found: dict[str, tuple[IndexDeclaration, Path]] = {}
    for path in declaration_files(folder):
        declaration = load_declaration(path)
        if declaration.name in found:
            raise DeclarationError(
                f"{path}: field 'name': {declaration.name!r} is already declared in "
                f"{found[declaration.name][1]}; index names must differ"
            )
        found[declaration.name] = (declaration, path)
    return [declaration for declaration, _ in found.values()]
