"""Do something while ranges are read, so that the store answers both at once."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Do work in threads while the body runs, to the end; errors of the body come first.

    Args:
        work: what to do, each in a thread.
    """
    if not work:
        yield
        return
    with ThreadPoolExecutor(len(work), "beside ranges") as threads:
        doing = [threads.submit(one) for one in work]
        yield
        for one in doing:
            one.result()
