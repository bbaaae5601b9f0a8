"""Import modules of others when something of them is first used, where they are slow to import.

PyIceberg's Arrow FileIO imports `pyarrow.dataset` for scans of its own, and that imports pandas
where it is installed: an eighth of the time that a search takes to import, for nothing.
"""

import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what importing asks of a module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(_imported(self), name)


_importing = threading.RLock()


def _imported(deferred: _Deferred) -> ModuleType:
    name = deferred.__name__
    with _importing:
        if sys.modules.get(name) is deferred:
            del sys.modules[name]
        return import_module(name)


def defer(name: str) -> None:
    """Have a module imported when something of it is first used, unless it is imported already.

    Whoever imports it gets what stands for it; names taken from that are the module's own.

    Args:
        name: of a module in a package.
    """
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    deferred = _Deferred(name)
    deferred.__spec__ = spec
    sys.modules[name] = deferred
