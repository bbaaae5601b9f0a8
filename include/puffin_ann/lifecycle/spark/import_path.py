"""Import PySpark from its folder, not from the archive that Spark puts in front of it on the path.

Spark starts drivers and Python workers with `python/lib/pyspark.zip`, Py4J's archive and a jar of
15 MB at the head of `PYTHONPATH`. No bytecode is kept of what is imported from an archive: each
process compiles it again, half a second of a core. And before each task a worker has Python forget
what it knows of its import path: it then reads the lists of contents of these archives again, one
time for each package in them, 70 ms in all. The folder that the archive was made from is in most
installations beside it.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

ARCHIVE = ("python", "lib", "pyspark.zip")
"""Where the archive is in Spark's home folder."""


def prefer_folders() -> None:
    """Take archives of this process's import path out of it; before PySpark is imported."""
    if "pyspark" in sys.modules:
        return
    before, sys.path[:] = list(sys.path), unpack_archives(sys.path)
    for entry in set(before).difference(sys.path):
        sys.path_importer_cache.pop(entry, None)  # or its contents would be read again even so


def unpack_archives(path: Sequence[str]) -> list[str]:
    """Return an import path with the same modules, and without Spark's archives where that can be.

    Archives stay where nothing but them holds the modules, as in a container of YARN, and where
    what would be found instead is of another installation or version.
    """
    found = list(path)
    for entry in path:
        archive = Path(entry)
        if archive.parts[-3:] == ARCHIVE:
            found = _without_pyspark(found, entry, archive.parents[2])
        elif archive.name.startswith("py4j-") and archive.suffix == ".zip":
            found = _without_py4j(found, entry, archive.name.split("-")[1])
        elif archive.name.startswith("spark-core_") and archive.suffix == ".jar":
            found = [path for path in found if path != entry]  # Java classes
    return found


def _without_pyspark(path: list[str], archive: str, home: Path) -> list[str]:
    """Return the path without PySpark's archive, if the folder is in the same home of Spark."""
    without = [entry for entry in path if entry != archive]
    if _folder_of("pyspark", without) == home.resolve():  # as pip installs it: found there anyway
        return without
    sources = home.resolve() / "python"
    instead = [str(sources) if entry == archive else entry for entry in path]
    return instead if _folder_of("pyspark", instead) == sources / "pyspark" else path


def _without_py4j(path: list[str], archive: str, version: str) -> list[str]:
    """Return the path without Py4J's archive, if what is found instead is of the same version."""
    without = [entry for entry in path if entry != archive]
    folder = _folder_of("py4j", without)
    try:
        same = folder is not None and f"'{version}'" in (folder / "version.py").read_text()
    except OSError:
        return path
    return without if same else path


def _folder_of(package: str, path: Sequence[str]) -> Path | None:
    """Return the folder that a package would be imported from; None if it is none, or in none."""
    spec = PathFinder.find_spec(package, path)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).resolve().parent
    return folder if folder.is_dir() else None  # not a place in an archive
