"""Keep BLAS to one thread while we bring our own.

Several Python threads that each call a threaded BLAS ask for threads times cores, and a product
split over another number of threads rounds otherwise, so a build would depend on the machine.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")

_lock = threading.Lock()
_depth = 0
_threads_before = 1


@contextmanager
def single_thread() -> Iterator[None]:
    """Let BLAS use one thread per call, in the whole process, until the last caller leaves.

    Without an OpenBLAS that numpy brought along, nothing happens: results stay right, and the
    surroundings (`OPENBLAS_NUM_THREADS`, `MKL_NUM_THREADS`) decide.
    """
    global _depth, _threads_before
    control = _openblas()
    if control is None:
        yield
        return
    get_threads, set_threads = control
    with _lock:
        if _depth == 0:
            _threads_before = get_threads()
            set_threads(1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                set_threads(_threads_before)


def parallel(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Give `work(item)` of each item, in their order, computed by up to `threads` threads.

    The caller's is one of them: it need not wait for another to begin, and works on an item while
    the one it is to give is not done. `work` must spend its time where the interpreter lock is
    released: kernels and BLAS.
    """
    things = list(items)
    workers = min(threads, len(things))
    if workers <= 1:
        yield from map(work, things)
        return
    results: list[Future[Result]] = [Future() for _ in things]
    places = iter(range(len(things)))

    def work_on_next() -> bool:
        place = next(places, None)
        if place is None:
            return False
        try:
            results[place].set_result(work(things[place]))
        except BaseException as error:
            _use_up(places)  # nobody begins another; those before this one were begun
            results[place].set_exception(error)
        return True

    def work_on() -> None:
        while work_on_next():
            pass

    with ThreadPoolExecutor(workers - 1) as pool:
        for _ in range(workers - 1):
            pool.submit(work_on)
        try:
            for result in results:
                while not result.done() and work_on_next():
                    pass
                yield result.result()
        finally:
            _use_up(places)


def _use_up(iterator: Iterator[object]) -> None:
    deque(iterator, maxlen=0)


@lru_cache(maxsize=1)
def _openblas() -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    package = Path(np.__file__).parent
    for folder in (package.with_name("numpy.libs"), package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for name in _NAMES:
                get_threads = getattr(library, name.format("get_num_threads"), None)
                set_threads = getattr(library, name.format("set_num_threads"), None)
                if get_threads is not None and set_threads is not None:
                    return get_threads, set_threads
    return None
