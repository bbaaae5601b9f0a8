"""Do without the garbage collector for the moment in which much is made and nothing dropped.

The collector looks through what was made last whenever there is some more of it. While modules are
imported or hundreds of DAGs are made, nearly all of it stays, and looking through it takes between
a seventh and a quarter of the time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected for now; afterwards it is as it was before."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
