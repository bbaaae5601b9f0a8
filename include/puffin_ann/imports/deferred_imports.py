"""Import modules of others when something of them is first used, where they are slow to import.

PyIceberg and Numba import what they need for scans, for conditions as text and for files of
configuration, whoever asks: a tenth of a second of a search, for nothing.
"""

import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_ASKED_OF_ALL = frozenset(("__path__", "__warningregistry__", "__wrapped__"))
"""Attributes that importing, warnings and inspection look for in whatever module there is."""

_replacing = threading.Lock()


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for that only the module has."""

    _beneath: Mapping[str, str]
    _is_package: bool

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED_OF_ALL and not (self._is_package and name == "__path__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        source = self._beneath.get(name)
        if source is not None and hasattr(import_module(source), name):
            return getattr(import_module(source), name)
        found = _imported(self)
        if name == "__all__" and not hasattr(found, name):  # all names of this would be taken
            return [public for public in vars(found) if not public.startswith("_")]
        return getattr(found, name)

    def __dir__(self) -> list[str]:
        return dir(_imported(self))


def _imported(deferred: _Deferred) -> ModuleType:
    name = deferred.__name__
    with _replacing:
        if sys.modules.get(name) is deferred:
            del sys.modules[name]
    # Without a lock of ours: Python's own know which thread waits for which.
    return import_module(name)


def defer(name: str, **beneath: str) -> None:
    """Have a module imported when something of it is first used, unless it is imported already.

    Whoever imports it gets what stands for it; names taken from that are the module's own.

    Args:
        name: of a module.
        beneath: attributes that it only hands on, and the modules that they are had from without
            importing it: what others ask of it as soon as they are imported.
    """
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    deferred = _Deferred(name)
    deferred._beneath = beneath
    deferred._is_package = spec.submodule_search_locations is not None
    deferred.__spec__, deferred.__file__ = spec, spec.origin
    sys.modules[name] = deferred
    package, _, leaf = name.rpartition(".")
    if package:  # as importing it leaves it there
        setattr(sys.modules[package], leaf, deferred)
