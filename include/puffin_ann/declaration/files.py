"""Read declarations from YAML files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from puffin_ann.declaration.allowed import check_spark
from puffin_ann.declaration.index import IndexDeclaration, parse_declaration
from puffin_ann.declaration.reading import describe_error, text_of
from puffin_ann.errors import DeclarationError
from puffin_ann.wording import names_known

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C takes a sixth of the time, and every parse of a DAG file reads all declarations."""

FLAT_ENOUGH = 10_000
"""Characters, of which each may open a level: of 40,000 levels the loader in C overruns its stack,
and the process ends."""

MOST_DEPTH = 100
MOST_VALUES = 100_000


def load_declaration(path: Path) -> IndexDeclaration:
    """Read and validate one declaration file; the name defaults to the file's stem.

    Raises:
        DeclarationError: the file is missing, is no regular one, is not YAML, gives a field twice,
            is not a valid declaration, or makes settings of Spark that are not allowed here.
    """
    try:
        data = _parsed(text_of(path))
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DeclarationError(
            f"{path}: cannot be read: its byte {error.start} is no UTF-8"
        ) from None
    except RecursionError:
        raise DeclarationError(f"{path}: is nested too deeply for a declaration") from None
    except (yaml.YAMLError, ValueError) as error:  # the latter of dates that there are not
        raise DeclarationError(f"{path}: is not valid YAML: {describe_error(error)}") from None
    except (KeyError, AttributeError, TypeError):  # what YAML's reader fails by
        raise DeclarationError(
            f"{path}: is not valid YAML: a value is not of the type that its tag names"
        ) from None
    if isinstance(data, dict):
        data.setdefault("name", path.stem)
    declaration = parse_declaration(data, source=str(path))
    check_spark(declaration, source=str(path))
    return declaration


def _parsed(text: str) -> Any:
    if len(text) > FLAT_ENOUGH:
        _check_depth(text)
    loader = LOADER(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _values_of(root, {})
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            raise RecursionError


def _values_of(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node holds, those of an alias counted wherever it is used.

    Refused are too many, which a few lines of aliases of aliases can make, and mappings that give a
    key twice, of which YAML's reader silently takes the last.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = 1  # an alias is the very node that it names, and may name itself
    parts = node.value
    if isinstance(node, yaml.MappingNode):
        _check_mapping(node)
        parts = [value for _, value in node.value]
    found = 1 + sum(_values_of(part, known) for part in parts)
    if found > MOST_VALUES:
        raise yaml.YAMLError(f"its aliases expand to more than {MOST_VALUES:,} values")
    known[id(node)] = found
    return found


def _check_mapping(node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            raise yaml.YAMLError(
                f"key {key.value!r} is given twice, in line {lines[key.value]} and in line {line}; "
                "keep one of them"
            )
        lines[key.value] = line


def declaration_files(folder: Path) -> list[Path]:
    """Return the declaration files of a folder, in order of name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


@dataclass(frozen=True)
class Declared:
    """The declarations of folders.

    Attributes:
        valid: in order of their files' names; of a name that two files declare, none.
        broken: files that are not valid, and what is wrong with each.
        ambiguous: names that several files declare, and which do.
        folders: that were read.
    """

    valid: tuple[IndexDeclaration, ...]
    broken: Mapping[Path, DeclarationError]
    ambiguous: Mapping[str, DeclarationError]
    folders: tuple[Path, ...]

    @property
    def place(self) -> str:
        """The folders, for messages."""
        return ", ".join(map(str, self.folders))

    @property
    def problems(self) -> tuple[DeclarationError, ...]:
        """One for each file that is not valid, and for each name that several declare."""
        return (*self.broken.values(), *self.ambiguous.values())

    def on(self, table: str) -> list[IndexDeclaration]:
        """Return the valid ones of a table's indexes."""
        return [declaration for declaration in self.valid if declaration.table == table]

    def require(self, name: str) -> IndexDeclaration:
        """Return the declaration of an index.

        Raises:
            DeclarationError: there is none; those that there are, and files with problems, are told
                aside. Or there are several; names their files.
        """
        if name in self.ambiguous:
            raise self.ambiguous[name]
        found = next((declaration for declaration in self.valid if declaration.name == name), None)
        if found is not None:
            return found
        others = names_known(name, (declaration.name for declaration in self.valid), "declared are")
        raise DeclarationError(
            f"no index named {name!r} is declared in {self.place}",
            # A reader of one DAG's log must not learn of other indexes.
            aside="; ".join([others, *map(str, self.problems)]),
        )


def read_declarations(*folders: Path) -> Declared:
    """Read every declaration of folders; what is wrong with one does not hide the others."""
    found: dict[str, tuple[IndexDeclaration, list[Path]]] = {}
    broken: dict[Path, DeclarationError] = {}
    for path in (path for folder in folders for path in declaration_files(folder)):
        try:
            declaration = load_declaration(path)
        except DeclarationError as error:
            broken[path] = error
            continue
        _, paths = found.setdefault(declaration.name, (declaration, []))
        paths.append(path)
    ambiguous = {
        name: DeclarationError(
            f"{' and '.join(map(str, paths))}: field 'name': each declares index {name!r}; "
            "give each index a name of its own"
        )
        for name, (_, paths) in found.items()
        if len(paths) > 1
    }
    valid = tuple(one for name, (one, _) in found.items() if name not in ambiguous)
    return Declared(valid, broken, ambiguous, folders)


def load_declarations(*folders: Path) -> list[IndexDeclaration]:
    """Read every declaration of folders, in order of their files' names.

    Raises:
        DeclarationError: one of them is not valid, or two declare the same index.
    """
    found = read_declarations(*folders)
    if found.problems:
        raise found.problems[0]
    return list(found.valid)
