import threading
import time

import numpy as np
import pytest

from puffin_ann.ann.core import blas

control = blas._openblas()


@pytest.mark.skipif(control is None, reason="numpy brought another BLAS")
def test_blas_is_held_to_one_thread_until_the_last_caller_leaves():
    get_threads, set_threads = control
    before = get_threads()
    set_threads(2)
    try:
        with blas.single_thread():
            assert get_threads() == 1
            with blas.single_thread():
                assert get_threads() == 1
            assert get_threads() == 1
        assert get_threads() == 2
        with pytest.raises(ZeroDivisionError), blas.single_thread():
            _ = 1 / 0
        assert get_threads() == 2
    finally:
        set_threads(before)


@pytest.mark.parametrize("threads", [1, 4])
def test_results_come_in_the_order_of_the_items(threads):
    assert list(blas.parallel(lambda i: i * i, range(50), threads)) == [i * i for i in range(50)]


def test_work_runs_on_as_many_threads_as_asked_for():
    together = threading.Barrier(3, timeout=10)
    assert len(list(blas.parallel(lambda _: together.wait(), range(3), 3))) == 3


def test_an_error_in_the_work_reaches_the_caller():
    with pytest.raises(np.linalg.LinAlgError):
        list(blas.parallel(lambda _: np.linalg.inv(np.zeros((2, 2))), range(3), 2))


def test_after_an_error_no_thread_begins_another_item():
    begun = []

    def work(item):
        begun.append(item)
        raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        list(blas.parallel(work, range(1000), 4))
    assert len(begun) <= 4


def test_the_thread_that_asks_is_one_of_those_that_work():
    used = set()

    def work(_):
        used.add(threading.current_thread())
        together.wait()

    together = threading.Barrier(2, timeout=10)
    list(blas.parallel(work, range(2), 2))
    assert threading.current_thread() in used
    assert len(used) == 2


def test_after_the_caller_left_no_thread_begins_another_item():
    begun = []

    def work(item):
        begun.append(item)
        time.sleep(0.001)

    results = blas.parallel(work, range(1000), 2)
    next(results)
    results.close()
    count = len(begun)
    assert count < 1000
    time.sleep(0.01)
    assert len(begun) == count


def test_results_are_given_while_others_are_worked_on():
    """The caller may write one to a file while the next is made."""
    caller, is_given = threading.current_thread(), threading.Event()

    def work(item):
        if threading.current_thread() is caller:
            time.sleep(0.001)
        elif item:
            assert is_given.wait(10)
        return item

    results = blas.parallel(work, range(50), 2)
    assert next(results) == 0
    is_given.set()
    assert list(results) == list(range(1, 50))
