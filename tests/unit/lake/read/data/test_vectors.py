import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.read.data.vectors import LARGEST_NORM, VectorBatch, vectors_of


def batch_of(*arrays: pa.Array, dimension: int | None = None) -> VectorBatch:
    return vectors_of(pa.chunked_array(list(arrays)), dimension)


def slow(rows: list, dimension: int) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """The same, row by row."""
    matrix = np.zeros((len(rows), dimension), dtype=np.float32)
    valid = np.zeros(len(rows), dtype=bool)
    reasons: dict[str, int] = {}
    for i, row in enumerate(rows):
        if row is None:
            why = "null"
        elif len(row) != dimension or not row:
            why = "wrong-length"
        else:
            with np.errstate(over="ignore"):
                vector = np.array([np.nan if x is None else x for x in row]).astype(np.float32)
            norm = np.linalg.norm(vector.astype(np.float64))
            why = "" if norm <= LARGEST_NORM else "too-long"
            if not np.isfinite(vector).all():
                why = "not-finite"
        if why:
            reasons[why] = reasons.get(why, 0) + 1
        else:
            matrix[i], valid[i] = vector, True
    return matrix, valid, reasons


ELEMENT = st.one_of(
    st.none(),
    st.floats(width=32, allow_nan=True, allow_infinity=True),
    st.sampled_from([1.0, 0.5, -0.0]),
)
ROW = st.one_of(st.none(), st.lists(ELEMENT, min_size=0, max_size=5))
KIND = st.sampled_from(
    [pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float32())]
)


@given(rows=st.lists(ROW, max_size=30), kind=KIND, cut=st.data(), dimension=st.integers(1, 5))
def test_any_lists_of_floats_are_read_as_row_by_row(rows, kind, cut, dimension) -> None:
    array = pa.array(rows, kind)
    first = cut.draw(st.integers(0, len(rows)))
    middle = cut.draw(st.integers(first, len(rows)))
    last = cut.draw(st.integers(middle, len(rows)))
    chunks = [array.slice(first, middle - first), array.slice(middle, last - middle)]
    read = batch_of(*chunks, dimension=dimension)
    matrix, valid, reasons = slow(rows[first:last], dimension)
    np.testing.assert_array_equal(read.matrix, matrix)
    np.testing.assert_array_equal(read.valid, valid)
    assert read.reasons() == reasons
    assert read.matrix.flags.c_contiguous
    assert read.matrix.dtype == np.float32
    viewed = vectors_of(pa.chunked_array([array.slice(first, last - first)]), dimension, view=True)
    np.testing.assert_array_equal(viewed.matrix, matrix)
    np.testing.assert_array_equal(viewed.valid, valid)


def test_sound_vectors_may_be_seen_where_they_are() -> None:
    lists = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())).slice(1)
    seen = vectors_of(pa.chunked_array([lists]), 2, view=True)
    assert np.shares_memory(seen.matrix, lists.values.to_numpy())
    assert seen.matrix.tolist() == [[3, 4], [5, 6]]
    copied = vectors_of(pa.chunked_array([lists]), 2)
    assert copied.matrix.flags.writeable


@pytest.mark.parametrize("view", [False, True])
def test_a_vector_may_be_as_long_as_its_squared_distances_fit_into_float32(view: bool) -> None:
    longest = np.float32(LARGEST_NORM)
    beyond = np.nextafter(longest, np.float32(np.inf))
    both = np.float32(0.8) * longest  # each element is short enough, the vector is not
    rows = [[longest, 0.0], [0.0, -longest], [beyond, 0.0], [both, both], [np.inf, 0.0]]
    lists = pa.array([[float(x) for x in row] for row in rows], pa.list_(pa.float32()))
    read = vectors_of(pa.chunked_array([lists]), 2, view=view)
    assert read.valid.tolist() == [True, True, False, False, False]
    assert read.reasons() == {"too-long": 2, "not-finite": 1}
    apart = read.matrix[0] - read.matrix[1]
    assert apart.dtype == np.float32
    assert np.isfinite(2 * (apart @ apart))


@given(
    rows=st.lists(st.one_of(st.none(), st.lists(ELEMENT, min_size=3, max_size=3)), max_size=20),
    first=st.integers(0, 20),
)
def test_fixed_size_lists_are_read_as_row_by_row(rows, first) -> None:
    read = batch_of(pa.array(rows, pa.list_(pa.float32(), 3)).slice(first), dimension=3)
    matrix, valid, reasons = slow(rows[first:], 3)
    np.testing.assert_array_equal(read.matrix, matrix)
    np.testing.assert_array_equal(read.valid, valid)
    assert read.reasons() == reasons


def test_a_null_row_may_own_elements() -> None:
    # Legal in Arrow, and what masking a column leaves behind.
    values = pa.array(np.arange(6, dtype=np.float32))
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 6], pa.int32()), values, mask=pa.array([False, True, False])
    )
    read = batch_of(array, dimension=2)
    assert read.matrix.tolist() == [[0, 1], [0, 0], [4, 5]]
    assert read.valid.tolist() == [True, False, True]
    assert read.reasons() == {"null": 1}


def test_the_first_usable_row_gives_the_dimension() -> None:
    array = pa.array([None, [], [1.0, 2.0], [1.0, 2.0, 3.0]], pa.list_(pa.float32()))
    read = batch_of(array)
    assert read.matrix.shape == (4, 2)
    assert read.valid.tolist() == [False, False, True, False]
    assert read.reasons() == {"null": 1, "wrong-length": 2}


@pytest.mark.parametrize("rows", [[], [None], [[], None]])
def test_without_a_usable_row_there_is_no_dimension(rows: list) -> None:
    read = batch_of(pa.array(rows, pa.list_(pa.float32())))
    assert read.matrix.shape == (len(rows), 0)
    assert not read.valid.any()


def test_no_chunks_at_all() -> None:
    read = vectors_of(pa.chunked_array([], pa.list_(pa.float32())), 7)
    assert read.matrix.shape == (0, 7)
    assert read.reasons() == {}


def test_a_double_beyond_float32_is_not_finite() -> None:
    read = batch_of(pa.array([[1e300, 1.0], [1.5, 1.0]], pa.list_(pa.float64())))
    assert read.valid.tolist() == [False, True]
    assert read.reasons() == {"not-finite": 1}


def test_an_extension_type_is_read_by_its_storage() -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), [2])
    storage = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    read = batch_of(pa.ExtensionArray.from_storage(kind, storage))
    assert read.matrix.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("lengths", "usual"), [([3, 2, 2], 2), ([0, 3, 2, 2, 3], 3), ([None, 0], 0), ([], 0)]
)
def test_vectors_are_as_long_as_most_of_them_are(lengths: list[int | None], usual: int) -> None:
    lists = [None if length is None else [1.0] * length for length in lengths]
    arrays = [
        pa.array(lists[:1], pa.list_(pa.float32())),
        pa.array(lists[1:], pa.list_(pa.float32())),
    ]
    assert batch_of(*arrays).matrix.shape[1] == usual


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int32())])
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedTableError, match="is stored as"):
        batch_of(pa.nulls(2, kind), dimension=2)


def test_reading_costs_no_python_object_per_row() -> None:
    rows, dimension = 5_000, 100
    values = np.random.default_rng(1).random(rows * dimension, dtype=np.float32)
    array = pa.FixedSizeListArray.from_arrays(pa.array(values), dimension)
    lists = array.cast(pa.list_(pa.float32()))
    tracemalloc.start()
    try:
        read = batch_of(lists, dimension=dimension)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(read.matrix.ravel(), values)
    assert peak < 3 * values.nbytes, "a list of a row takes eight times its vector"
