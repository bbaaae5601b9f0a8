import io
import zipfile

import numpy as np
import pytest

from puffin_ann.cli.queries import vectors_of_file
from puffin_ann.errors import QueryError


def npy(array) -> bytes:
    held = io.BytesIO()
    np.save(held, array, allow_pickle=True)
    return held.getvalue()


def npz() -> bytes:
    held = io.BytesIO()
    np.savez(held, a=np.zeros(3))
    return held.getvalue()


def huge(count: int) -> bytes:
    """A header that says there are more numbers than the file has."""
    return npy(np.zeros(3, np.float32)).replace(
        b"(3,), }" + b" " * 18, f"({count},), }}".encode().ljust(25)
    )


def archive() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as target:
        target.writestr(zipfile.ZipInfo("a.npy"), b"no array")  # without the time of day
    return held.getvalue()[:-20]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.npy", b"", "no .npy file"),
        ("q.npy", npz(), "no .npy file"),
        ("q.npy", archive(), "no .npy file"),
        ("q.npy", b"PK\x03\x04", "no .npy file"),
        ("q.npy", npy(np.zeros(9))[:40], "cannot be read"),
        ("q.npy", npy(np.zeros(9))[:-5], "cannot be read"),
        ("q.npy", huge(10**16), "memory"),
        ("q.npy", npy(np.zeros(9)).replace(b"}", b"("), "cannot be read"),
        ("q.npy", npy(np.zeros(9)).replace(b"False", b"f a l"), "cannot be read"),
        ("q.npy", npy(np.array([None])), "cannot be read"),
        ("q.npy", npy(np.ones(3, complex)), "holds complex128 of shape"),
        ("q.npy", npy(np.ones(3, bool)), "holds bool of shape"),
        ("q.npy", npy(np.ones((2, 2, 2))), "not vectors"),
        ("q.npy", npy(np.array([[0, 1], [1e300, 1]])), "query 1 holds a number beyond float32"),
        ("q.npy", npy(np.zeros((0, 4), np.float32)), "holds no query vector"),
        ("q.json", b"", "cannot be read"),
        ("q.json", b"\xff\xfe", "cannot be read"),
        ("q.json", b"[]", "holds no query vector"),
        ("q.json", b"[[1, 2],\n x]", "as JSON from line 2, column 2 on"),
        ("q.json", b"[[1, 2], [3]]", "query 1 has 1 number, and query 0 has 2"),
        ("q.json", b"[[1, 2], 3]", "query 1 is 3, and not a list as others are"),
        ("q.json", b"[[1, 2], [3, null]]", "query 1 holds None, which is no number"),
        ("q.json", b"[[[1, 2]], [[3]]]", r"query 0 holds \[1, 2\], which is no number"),
        ("q.json", b"[1, null]", "None is no number"),
        ("q.json", b'{"a": 1}', "not vectors"),
        ("q.json", b'[["1.5", "2"]]', "queries hold text"),
        ("q.json", b"[[true, false]]", "queries hold true and false"),
        ("q.json", b"[[1, 2], [1.5, true]]", "queries hold true and false"),
        ("q.json", b"[1, 1e300]", "query 0 holds a number beyond float32"),
        ("q.json", b"[" + b"9" * 400 + b"]", "not vectors"),
        ("q.json", b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_without_vectors_is_refused_by_name_and_reason(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(QueryError, match=message) as caught:
        vectors_of_file(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", ["q.npy", "q.json"])
def test_a_file_that_cannot_be_opened_is_told_in_words(tmp_path, name):
    with pytest.raises(QueryError, match=rf"{name}: cannot be read: there is no such file$"):
        vectors_of_file(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(QueryError, match=rf"{name}: cannot be read: it is a folder$"):
        vectors_of_file(tmp_path / name)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.uint8])
def test_real_numbers_of_any_type_are_taken(tmp_path, kind):
    np.save(tmp_path / "q.npy", np.arange(4, dtype=kind))
    found = vectors_of_file(tmp_path / "q.npy")
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1, 2, 3]]
