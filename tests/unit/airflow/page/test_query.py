"""A search by the page: answered in time or refused in words, and few at work at a time."""

import threading
from collections.abc import Callable

import pytest

from puffin_ann.airflow.page import query
from puffin_ann.airflow.page.query import QueryRefused, nearest
from puffin_ann.errors import CatalogUnavailableError, NotFoundError, StoreUnavailableError

ASKED = ("demo.glove.words", "words", "word", "frog")


@pytest.fixture
def search(monkeypatch):
    """Have searches do something else, each with a number of places of its own."""

    def put(what: Callable[..., object]) -> None:
        monkeypatch.setattr(query, "_search", what)
        monkeypatch.setattr(query, "_free", threading.BoundedSemaphore(query.AT_ONCE))

    return put


def test_a_silent_catalog_keeps_no_reader_and_starts_no_more_than_two_threads(search, monkeypatch):
    ever, asked = threading.Event(), []

    def silent(*_: str) -> None:
        asked.append(threading.current_thread())
        ever.wait()

    search(silent)
    monkeypatch.setattr(query, "DEADLINE_SECONDS", 0.05)
    told = []
    for _ in range(5):
        with pytest.raises(QueryRefused) as refused:
            nearest(*ASKED)
        told.append(str(refused.value))
    assert all("no answer within" in words for words in told[:2])
    assert all("2 searches are at work already" in words for words in told[2:])
    assert len(asked) == 2

    ever.set()
    for thread in asked:
        thread.join()
    search(lambda *_: "the answer")
    assert [nearest(*ASKED) for _ in range(5)] == ["the answer"] * 5


def test_each_search_gives_its_place_back_however_it_ends(search):
    def refuse(*_: str) -> None:
        raise NotFoundError("no row has the key")

    search(refuse)
    for _ in range(2 * query.AT_ONCE):
        with pytest.raises(QueryRefused, match="no row has the key"):
            nearest(*ASKED)


@pytest.mark.parametrize("error", [CatalogUnavailableError, StoreUnavailableError])
def test_what_a_catalog_or_store_says_of_itself_is_not_told(search, error):
    def fail(*_: str) -> None:
        raise error("postgresql://svc:S3cretPw@db.internal is down")

    search(fail)
    with pytest.raises(QueryRefused) as refused:
        nearest(*ASKED)
    assert str(refused.value) == "its catalog or its store does not answer"


@pytest.mark.parametrize("given", [("k" * 1001, ""), ("frog", "w" * 1001)])
def test_texts_that_nobody_types_are_refused_before_anything_is_asked(search, given):
    search(lambda *_: pytest.fail("it was asked"))
    key, where = given
    with pytest.raises(QueryRefused, match="at most 1000 characters"):
        nearest(*ASKED[:3], key, where)
