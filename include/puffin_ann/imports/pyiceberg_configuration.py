"""PyIceberg's configuration, read before anything else is imported of PyIceberg.

PyIceberg reads it when its modules are imported, and a file that it does not accept ends the import
with an error that does not name the file.
"""

import os
import re
from importlib import import_module
from pathlib import Path

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.redaction import shown_cause

FILE = ".pyiceberg.yaml"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

LOOKS_LIKE = (
    "write one setting a line, indented by spaces: 'catalog:', below it the catalog's name as in "
    "'  lake:', and below that its settings as in '    uri: https://...'"
)


def require_readable() -> None:
    """Have PyIceberg read its configuration.

    Raises:
        CatalogUnavailableError: it cannot; names the file, the line, and what is wrong there.
    """
    try:
        import_module("pyiceberg.manifest")  # the first of its modules to read it
    except ImportError:
        raise
    except Exception as error:
        raise unreadable(error) from shown_cause(error)


def where_it_is() -> str:
    """Return where the configuration is that PyIceberg reads."""
    files = _files()
    return f"{files[0]} or variables PYICEBERG_*" if files else "variables PYICEBERG_*"


def unreadable(error: Exception) -> CatalogUnavailableError:
    """Return the error of a configuration that PyIceberg cannot read.

    Args:
        error: that PyIceberg raised, which names no file.
    """
    for file in _files():
        wrong = _wrong_with(file)
        if wrong:
            return CatalogUnavailableError(f"{file}{wrong}")
    # What PyIceberg says has values in it, of which one may be a password.
    said = type(error).__name__
    if "Incompatible" in str(error):
        said = "a name has one value in one place, and settings below it in another"
    return CatalogUnavailableError(
        f"PyIceberg cannot use its configuration, {where_it_is()}: {said}; correct them"
    )


def _wrong_with(file: Path) -> str:
    """Return what is wrong with a file, to follow its name; empty if PyIceberg can read it."""
    import strictyaml  # type: ignore[import-untyped]  # in which PyIceberg has it

    try:
        text = file.read_text(encoding="utf-8")
        if control := _CONTROL.search(text):
            line = text.count("\n", 0, control.start()) + 1
            return f", line {line}, holds a character that is no text; write the line anew"
        found = strictyaml.load(text).data
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not text in UTF-8"
        return f" cannot be read: {said}; mend it, or have PYICEBERG_HOME name another folder"
    except Exception as error:
        return f"{_line_of(error)} cannot be read: {_said_by(error)}; {LOOKS_LIKE}"
    if isinstance(found, dict):
        return ""
    return f" holds no settings of PyIceberg's; {LOOKS_LIKE}, or remove it"


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1},"


def _said_by(error: Exception) -> str:
    kind, said = type(error).__name__, getattr(error, "problem", None)
    if kind == "FlowMappingDisallowed":
        return "PyIceberg takes no settings in brackets or braces"
    if "alias" in str(said):  # which is the value, and may be a password
        return "a value that begins with * has to stand in quotes"
    return " ".join(str(said or kind).split())


def _files() -> list[Path]:
    """Return the files that PyIceberg looks for, in its order, that there are.

    It takes the first that has any setting.
    """
    home = os.environ.get("PYICEBERG_HOME")
    folders = [*([home] if home else []), os.path.expanduser("~"), os.curdir]
    return [file for folder in folders if (file := Path(folder, FILE).absolute()).is_file()]
