"""What was found to cost least under a condition: not every query has it found out again."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

AGAIN = 4
"""It is found out again once a quarter more queries have asked: what they met tells more. To find
it out takes 60 to 80 us of a query that is sifted, a third of what that takes itself; an eighth had
the first hundred queries do so 25 times, a quarter 16 times. The first of them know the least, so
not each of these does."""
MOST = 64
"""Questions whose answers are kept."""

Answer = TypeVar("Answer")


class Decisions:
    """Which way pays, by what is asked; safe for several threads, which may find it out twice."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, int]] = {}
        self._latest: tuple[Hashable, Any] = None, None

    def of(self, question: Hashable, asked: int, decide: Callable[[], Answer]) -> Answer:
        """Return what was decided, or decide.

        Args:
            question: what is to be decided.
            asked: queries under the condition so far.
            decide: finds it out.
        """
        known = self._known.get(question)
        if known is not None and asked <= known[1]:
            answer: Answer = known[0]
            return answer
        found = decide()
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[question] = found, asked + max(1, asked // AGAIN)
        return found

    def last(self, question: Hashable) -> Any:
        """Return what was decided last, though it may be time to decide again; None if nothing."""
        known = self._known.get(question)
        return None if known is None else known[0]

    def doubt(self, question: Hashable) -> None:
        """Have a question decided again, however few have asked since."""
        known = self._known.get(question)
        if known is not None:
            self._known[question] = known[0], -1

    def latest(self, question: Hashable, find: Callable[[], Answer]) -> Answer:
        """Return what was found of a question, if it was the latest, or find it.

        A search decides several things, most by the same figures.
        """
        known, answer = self._latest
        if known == question:
            found: Answer = answer
            return found
        found = find()
        self._latest = question, found
        return found

    def clear(self) -> None:
        """Forget what was decided."""
        self._known.clear()
        self._latest = None, None


def size_of(queries: int) -> int:
    """Return what batches have in common that cost about the same a query."""
    return queries.bit_length()
