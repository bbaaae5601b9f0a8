"""The garbage collector is as it was after it was done without."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

import puffin_ann
from puffin_ann.engines import engine
from puffin_ann.imports.uncollected import uncollected

THOUSANDS = 50_000


class Node:
    """Garbage that only the collector finds: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def generation(node: Node) -> int:
    return next(
        old
        for old in range(3)
        if any(get_stored_object is node for get_stored_object in gc.get_objects(old))
    )


def printed(code: str) -> str:
    """What code prints in a process of its own, where no other thread makes or drops anything."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_nothing_is_looked_through_meanwhile_nor_because_of_it_afterwards():
    code = f"""
import gc
from puffin_ann.imports.uncollected import uncollected
class Node: pass
started = []
note = lambda phase, info: started.append(info["generation"])
gc.collect()
gc.callbacks.append(note)
with uncollected():
    kept = [Node() for _ in range({THOUSANDS})]
gc.callbacks.remove(note)
print(started, any(one is kept[0] for one in gc.get_objects(2)))
"""
    assert printed(code) == "[] True"


def test_garbage_that_was_made_meanwhile_is_found_later():
    with uncollected():
        lost = weakref.ref(Node())
    assert lost() is not None
    gc.collect()
    assert lost() is None


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_afterwards_as_it_was_before(is_on):
    if not is_on:
        gc.disable()
    with uncollected(), uncollected():
        assert not gc.isenabled()
    assert gc.isenabled() == is_on
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled() == is_on


def test_what_somebody_froze_stays_frozen():
    code = (
        "import gc; from puffin_ann.imports.uncollected import uncollected; gc.freeze()\n"
        "with uncollected(): pass\n"
        "print(gc.get_freeze_count())"
    )
    assert int(printed(code)) > 0


def test_what_is_young_stays_so_once_everything_is_imported():
    """What is old is looked through seldom: indexes let go of would keep their files open."""
    assert puffin_ann.open_index
    assert engine("exact")
    gc.collect()
    node = Node()
    assert puffin_ann.open_index
    assert engine("exact")
    assert generation(node) < 2
