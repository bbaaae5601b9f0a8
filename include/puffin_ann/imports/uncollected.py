"""Do without the garbage collector for the moment in which much is made and nothing dropped.

The collector looks through what is new whenever there is some more of it, and three times over
until it counts as old. While modules are imported or hundreds of DAGs are made, nearly all of it
stays, and looking through it takes up to a third of the time.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected for now, and all there is counted as old afterwards.

    Garbage among it is found when everything is looked through, which is seldom: so this is for
    what a process does once.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else somebody has objects frozen, and they are to stay so
            gc.freeze()  # what is thawed is old, and nothing was looked through
            gc.unfreeze()
        gc.enable()


def collect_no_more() -> None:
    """Have no garbage looked for any more: the process ends, and with it all memory.

    Python looks through everything several times over before it ends, which takes a command an
    eighth of its time.
    """
    gc.disable()
    gc.freeze()


def imported(name: str) -> ModuleType:
    """Return a module; where this imports it, without the garbage collector."""
    if name in sys.modules:
        return import_module(name)  # another thread may still be at it
    with uncollected():
        return import_module(name)
