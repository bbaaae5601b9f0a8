"""Requests to a catalog that end: in time for their caller, and soon after in the thread that asks.

PyIceberg gives its requests no timeout, and asks a server even while a catalog object is made: one
that accepts connections and stays silent would hang its callers, and every thread that asks.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, TypeVar

from tenacity import (
    RetryCallState,
    retry,
    retry_if_exception,
    stop_after_attempt,
    stop_any,
    wait_exponential,
)
from tenacity.stop import stop_base

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.lake.store.outages import is_passing

ATTEMPTS = 3
HTTP_TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two bytes of an answer."""

MOST_UNANSWERED = 4
"""Threads that wait for one catalog though nobody waits for them any more. Those that speak HTTP
end with their sockets; drivers of databases and of Hive may not have such limits."""

GRACE_SECONDS = 0.5
"""So long after the asker gave up its thread's socket does: the error is to be the asker's."""

_until: ContextVar[float | None] = ContextVar("until", default=None)
"""When the asker of this thread gives up, by the monotonic clock."""

_unanswered: dict[str, list[threading.Thread]] = defaultdict(list)
_lock = threading.Lock()

_T = TypeVar("_T")


def within(seconds: float, name: str, ask: Callable[[], _T]) -> _T:
    """Return what `ask` returns, or give up on the catalog after `seconds`.

    Args:
        seconds: to wait.
        name: of the catalog.
        ask: asks it; runs in a thread of its own.

    Raises:
        CatalogUnavailableError: there was no answer in time, or too many earlier questions to this
            catalog still wait for theirs.
    """
    _require_answers(name)
    answers: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        _until.set(time.monotonic() + seconds)
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"catalog-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        with _lock:
            _unanswered[name].append(thread)
        raise CatalogUnavailableError(
            f"catalog {name!r} gave no answer within {seconds:g} s; check that its service runs "
            "and that its uri points to it, or give it longer: PUFFIN_ANN_CATALOG_SECONDS"
        )
    if errors:
        raise errors[0]
    return answers[0]


def _require_answers(name: str) -> None:
    with _lock:
        waiting = [thread for thread in _unanswered[name] if thread.is_alive()]
        _unanswered[name] = waiting
    if len(waiting) >= MOST_UNANSWERED:
        raise CatalogUnavailableError(
            f"catalog {name!r} has not answered {len(waiting)} earlier questions of this process, "
            "which still wait; check that its service runs and that its uri points to it. If it "
            "does and this goes on, restart this process"
        )


def is_transient(error: BaseException) -> bool:
    """Tell a missing answer from an answer: only the former may be different next time."""
    return is_passing(error) or type(error).__name__ in {
        "OperationalError",  # SQLAlchemy: locked or unreachable database
        "ServiceUnavailableError",
        "ServerError",
        "TooManyRequestsError",
    }


class NobodyWaits(stop_base):
    """Stop asking again once the caller has given up."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Tell whether they have."""
        until = _until.get()
        return until is not None and time.monotonic() >= until


@retry(
    retry=retry_if_exception(is_transient),
    stop=stop_any(stop_after_attempt(ATTEMPTS), NobodyWaits()),
    wait=wait_exponential(multiplier=0.2, max=2),
    reraise=True,
)
def ask_until_answered(ask: Callable[[], _T]) -> _T:
    """Return what `ask` returns; where no answer comes, it is asked again while a caller waits."""
    return ask()


@cache
def limit_requests() -> None:
    """Let HTTP requests of threads of `within` wait no longer than their asker does.

    Not by the session of PyIceberg's catalog: its constructor asks for a configuration and for
    tokens by sessions that it makes itself. Requests of other threads are left as they are.
    """
    from requests.adapters import HTTPAdapter

    send = HTTPAdapter.send

    @wraps(send)
    def limited(
        self: HTTPAdapter, request: Any, stream: bool = False, timeout: Any = None, **more: Any
    ) -> Any:
        until = _until.get()
        if until is not None:
            left = max(0.0, until - time.monotonic()) + GRACE_SECONDS
            timeout = tuple(min(most, left) for most in HTTP_TIMEOUT)
        return send(self, request, stream=stream, timeout=timeout, **more)

    HTTPAdapter.send = limited  # type: ignore[assignment, method-assign]
