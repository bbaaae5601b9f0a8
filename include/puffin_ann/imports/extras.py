"""Packages that only some work needs, and the extras of this package that bring them.

Searching needs none of them, so each is imported where it is used, and an import that fails tells
which extra was left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from puffin_ann.errors import NotInstalledError

Extra = Literal["airflow", "cli", "glue", "hive", "hnsw", "livy", "s3", "spark"]
"""An extra of this package; pyproject.toml says what each brings."""


def install_command(extra: Extra) -> str:
    """Return the command that installs what an extra brings."""
    return f"pip install 'puffin-ann[{extra}]'"


@contextmanager
def needing(extra: Extra, work: str) -> Iterator[None]:
    """Name the extra that is missing, where an import finds that a package is.

    Args:
        extra: brings what is imported.
        work: what needs it, as the subject of a sentence.

    Raises:
        NotInstalledError: a package is not installed; it is an ImportError, too.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"{work} needs the package {error.name!r}, which is not installed: "
            f"{install_command(extra)}"
        ) from None


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    return find_spec(package) is not None
