"""Read the bytes of a declaration file, and say what is wrong with them without repeating them.

The writer of a file in the declarations folder may have fewer rights than the process that reads
it: a link may lead to a file that only the reader can open, and an error may be shown to all users
of Airflow.
"""

import os
import stat
from pathlib import Path

import yaml

from puffin_ann.errors import DeclarationError

MOST_BYTES = 64 << 10
"""Of a file: every parse of a DAG file reads all of them."""


def text_of(path: Path) -> str:
    """Return the text of a declaration file.

    A link is followed as long as it stays in its folder, as Kubernetes mounts files of a ConfigMap.

    Raises:
        DeclarationError: it is not a regular file of at most 64 KiB, or leads out of its folder.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    real = Path(os.path.realpath(path))
    if path.is_symlink() and not real.is_relative_to(os.path.realpath(path.parent)):
        raise DeclarationError(
            f"{path}: is a link that leads out of its folder, and is not followed; put the file "
            "itself there"
        )
    # A pipe would be waited for; nobody may put a link there meanwhile.
    handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DeclarationError(f"{path}: is no regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DeclarationError(
            f"{path}: has more than {MOST_BYTES >> 10} KiB, which no declaration needs"
        )
    return data.decode("utf-8")


def describe_error(error: Exception) -> str:
    """Return what is wrong with YAML, and where; not what is written there."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error) if isinstance(error, yaml.YAMLError) else "a value cannot be read"
    problem, mark = error.problem or error.context or "", error.problem_mark or error.context_mark
    problem = problem.partition("'")[0].strip() or "a value cannot be read"
    return f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark else problem
