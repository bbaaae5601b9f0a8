"""Engines by name: each joins an algorithm over arrays with the blob it is stored in."""

from collections.abc import Mapping

from puffin_ann.engines.base import SearchableShard, ShardEngine
from puffin_ann.engines.exact import ExactEngine
from puffin_ann.errors import DeclarationError

__all__ = ["ENGINES", "SearchableShard", "ShardEngine", "engine"]

ENGINES: Mapping[str, ShardEngine] = {one.algorithm: one for one in (ExactEngine(),)}


def engine(algorithm: str) -> ShardEngine:
    """Return the engine of an algorithm.

    Raises:
        DeclarationError: There is none of that name.

    """
    try:
        return ENGINES[algorithm]
    except KeyError:
        known = ", ".join(sorted(ENGINES))
        raise DeclarationError(f"algorithm {algorithm!r} is unknown; known are: {known}") from None
