import io

import pytest

from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.errors import BlobFormatError
from tests.support.falsified.mutation import assemble


def blob(kind: str = "rows", **sections: bytes) -> bytes:
    return assemble(sections, kind)


def test_a_copy_has_the_same_fingerprint_and_whatever_differs_another():
    blobs = [
        blob(head=b"12345678", data=bytes(100_000)),
        blob(head=b"12345678", data=bytes(99_999) + b"\1"),
        blob(head=b"12345679", data=bytes(100_000)),
        blob(head=b"12345678", date=bytes(100_000)),
        blob("grph", head=b"12345678", data=bytes(100_000)),
        blob(head=b"12345678"),
        blob(),
    ]
    found = [fingerprint(io.BytesIO(blob)) for blob in blobs]
    assert len(set(found)) == len(blobs)
    assert found == [fingerprint(io.BytesIO(bytes(blob))) for blob in blobs]


@pytest.mark.parametrize(
    "corrupt", [lambda whole: whole[:-1], lambda whole: whole[1:], lambda whole: b"PANN"]
)
def test_what_does_not_end_as_a_blob_has_none(corrupt):
    with pytest.raises(BlobFormatError):
        fingerprint(io.BytesIO(corrupt(blob(head=b"12345678"))))
