"""The folder of declarations of this machine, if it has one.

Declarations are files that are checked out or mounted: a machine without them, or with an empty
folder, does not know what is declared, which is another thing than that nothing is.
"""

from pathlib import Path

from puffin_ann.declaration.files import Declared, declaration_files, read_declarations
from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.settings import settings


def declarations_folder() -> Path:
    """Return the folder of declarations, for what cannot do without.

    Raises:
        EnvironmentProblemError: none is named, or there is none where it should be.
    """
    folder = settings().declarations_dir
    if folder is None:
        raise EnvironmentProblemError(
            "PUFFIN_ANN_DECLARATIONS_DIR is not set: let it name the folder of the index "
            "declarations, *.yaml files, on this machine"
        )
    if not folder.is_dir():
        raise EnvironmentProblemError(
            f"there is no folder of declarations at {folder}: mount it or check it out there, or "
            "let PUFFIN_ANN_DECLARATIONS_DIR name it"
        )
    return folder


def known_declarations() -> Declared | None:
    """Return what is declared; None if this machine does not know."""
    folder = settings().declarations_dir
    if folder is None or not folder.is_dir() or not declaration_files(folder):
        return None
    return read_declarations(folder)
