"""What every searcher is asked for and gives: types only, imported at no cost."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Answers = tuple[NDArray[np.int64], NDArray[np.float32]]
"""`(q, k)` rows, nearest first, −1 where there is none, and their distances, infinite there."""

Sight = NDArray[np.float32]
"""`(…, 3)`, by `HORIZON`, `SEEN` and `THROUGH`: what is known of the rows near a query, of which
some must not be answered. None that may be is nearer than the horizon and not among the answers; so
many rows were seen, and so many of those may be answered."""
HORIZON, SEEN, THROUGH = 0, 1, 2

Width = int | NDArray[np.int64]
"""How many candidates are kept for a query: one number for all, or `(q,)`."""

Whole = int | np.integer[Any]
"""A number in a kernel that counts or names something; Numba knows its width."""

Fields = tuple[Any, ...]
"""The fields of a named tuple of a kernel's arguments, as a plain tuple.

Numba takes a named tuple apart when it compiles: a kernel gets the same arrays and numbers as if
they were given one by one. But for a call from Python it looks up the class of each named tuple,
which takes about 1 µs, a fortieth of a search. So kernels that answer queries are given plain
tuples, and name their fields first: `Space(*space_fields)`.
"""
