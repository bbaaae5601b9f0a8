"""A process that compiles kernels: by an exercise, or for types that others were found to need.

    python -m puffin_ann.compilation.worker exercise NAME FOUND
    python -m puffin_ann.compilation.worker types FOUND

`FOUND` is a file of the kernels and the types of their arguments, which the first writes and the
second reads. Where kernels are kept, and which processor they are for, is said by variables.
"""

import importlib
import os
import pickle
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

Overload = tuple[str, str, Any]
"""Module and name of a kernel, and the types of its arguments."""


def main(how: str, *arguments: str) -> None:
    """Do what the command line asks for."""
    if how == "exercise":
        _exercise(*arguments)
    else:
        _compile_types(*arguments)


def _exercise(name: str, found: str) -> None:
    from puffin_ann.compilation.exercises import EXERCISES
    from puffin_ann.errors import NotInstalledError

    with tempfile.TemporaryDirectory() as folder:
        # Before any setting is read: shards are kept there, too.
        os.environ["PUFFIN_ANN_CACHE_DIR"] = str(Path(folder, "cache"))
        work = Path(folder, "work")
        work.mkdir()
        with suppress(NotInstalledError):  # what cannot be done here needs no kernels here
            EXERCISES[name](work)
    from puffin_ann.kernel_cache.numba_cache import kernels

    overloads: list[Overload] = [
        (kernel.py_func.__module__, kernel.py_func.__name__, types)
        for kernel in kernels
        for types in kernel.overloads
    ]
    Path(found).write_bytes(pickle.dumps(overloads))


def _compile_types(found: str) -> None:
    overloads: list[Overload] = pickle.loads(Path(found).read_bytes())  # noqa: S301 - our parent's
    for module, name, types in overloads:
        getattr(importlib.import_module(module), name).compile(types)


if __name__ == "__main__":
    main(*sys.argv[1:])
