"""The folders of declarations of this machine, if it has any.

Declarations are files that somebody checks out or mounts: a machine without them, or with empty
folders, does not know what is declared, which is another thing than that nothing is.

A DAG file may name a folder beside itself. Tasks run in processes that parse their DAG file first,
so that they know what it knows, wherever Airflow keeps it.
"""

from pathlib import Path

from puffin_ann.declaration.files import Declared, declaration_files, read_declarations
from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.settings import settings

BESIDE = "indexes"
"""The folder beside a DAG file that counts where no other is named."""

_named: dict[Path, None] = {}
"""Folders that DAG files of this process named, in their order."""


def declarations_folders() -> tuple[Path, ...]:
    """Return the folders of declarations, for what cannot do without.

    Raises:
        EnvironmentProblemError: none is named, or there is none where one should be.
    """
    folders = _known_folders()
    if not folders:
        raise EnvironmentProblemError(
            "PUFFIN_ANN_DECLARATIONS_DIR is not set: let it name the folder of the index "
            "declarations, *.yaml files, on this machine"
        )
    for folder in folders:
        if not _is_folder(folder):
            raise EnvironmentProblemError(
                f"there is no folder of declarations at {folder}: mount it or check it out there, "
                "or let PUFFIN_ANN_DECLARATIONS_DIR name it"
            )
    return folders


def folder_beside(file: Path, named: str | Path | None = None) -> Path | None:
    """Return the folder of declarations beside a DAG file, which then counts for this process.

    Args:
        file: the DAG file.
        named: a folder that it names, as seen from the file; None for `indexes`, if it is there and
            the settings of this machine name no folder.

    Returns:
        None where the folders of this machine's settings are meant.

    Raises:
        EnvironmentProblemError: the folder that is named is not there.
    """
    beside = file.absolute().parent / (named or BESIDE)
    if named is None and (are_named() or not _is_folder(beside)):
        return None
    if not _is_folder(beside):
        raise EnvironmentProblemError(
            f"there is no folder of declarations at {beside}, which {file} names"
        )
    _named[beside] = None
    return beside


def known_declarations() -> Declared | None:
    """Return what is declared; None if this machine does not know."""
    folders = [folder for folder in _known_folders() if _is_folder(folder)]
    if not any(declaration_files(folder) for folder in folders):
        return None
    return read_declarations(*folders)


def _is_folder(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except PermissionError:
        raise EnvironmentProblemError(
            f"this user may not look into {folder.parent}, where declarations are to be: give them "
            "permission, or let PUFFIN_ANN_DECLARATIONS_DIR name another folder"
        ) from None


def _known_folders() -> tuple[Path, ...]:
    """Return the folders that are named; those of a checkout only where none is."""
    given = settings()
    told = given.declarations_dir if are_named() else ()
    known = {folder.absolute(): folder for folder in (*told, *_named)}
    return tuple(known.values()) or given.declarations_dir


def are_named() -> bool:
    """Tell whether the settings of this machine name folders; else a checkout's own is meant."""
    return "declarations_dir" in settings().model_fields_set
