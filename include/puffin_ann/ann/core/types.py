"""What every searcher is asked for and gives: types only, imported at no cost."""

import numpy as np
from numpy.typing import NDArray

Answers = tuple[NDArray[np.int64], NDArray[np.float32]]
"""`(q, k)` rows, nearest first, −1 where there is none, and their distances, infinite there."""

Width = int | NDArray[np.int64]
"""How many candidates are kept for a query: one number for all, or `(q,)`."""
