"""Section `vecs` in its forms: bounds hold, and what a blob claims is held to what it has."""

import io

import numpy as np
import pytest

from puffin_ann.blobs.encoding import mapped, stored_vectors
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.blobs.encoding.stored_vectors import FORM, FORMS, Stored
from puffin_ann.errors import BlobFormatError


def written(vectors, stored):
    out = io.BytesIO()
    writer = ContainerWriter(out, "test", minor=stored_vectors.minor_of(stored), by_ranges=True)
    stored_vectors.put(writer, vectors, stored)
    writer.finish()
    return out


def read(blob, rows, dimension, folder):
    reader = ContainerReader(blob, "test")
    form = stored_vectors.form_of(reader)
    stored_vectors.expect(reader, form, rows, dimension)
    target = mapped.Folder(folder)
    stored_vectors.unpack(reader, target, form, rows, dimension)
    target.finish({})
    return mapped.open_folder(folder)[0]


@pytest.mark.parametrize("form", ["float16", "int8"])
@pytest.mark.parametrize("scale", [1e-44, 1e-9, 1.0, 6e4])
def test_what_is_stored_is_no_farther_than_its_error(form, scale, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_vectors, "BLOCK_BYTES", 1000)
    vectors = np.random.default_rng(0).uniform(-1, 1, (300, 7)).astype(np.float32)
    vectors *= np.float32(scale)
    vectors[5] = 0
    found = read(written(vectors, Stored(form)), 300, 7, tmp_path)
    apart = np.linalg.norm(vectors.astype(np.float64) - found["vectors"], axis=1)
    assert (apart <= found["errors"]).all()
    assert ((found["errors"] == 0) == (found["vectors"] == vectors).all(axis=1)).all()
    if scale >= 1e-3:
        assert found["errors"].max() < 0.02 * scale


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_rows_that_were_stored_before_keep_bits_errors_and_scales(form, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_vectors, "BLOCK_BYTES", 1000)
    vectors = np.random.default_rng(0).standard_normal((333, 5)).astype(np.float32)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = read(written(vectors[:200], Stored(form)), 200, 5, tmp_path / "one")
    every = np.concatenate([one["vectors"], vectors[200:]])
    two = read(
        written(every, stored_vectors.known(tmp_path / "one", form)), 333, 5, tmp_path / "two"
    )
    for name in one:
        np.testing.assert_array_equal(two[name][:200], one[name])
    apart = np.linalg.norm(vectors.astype(np.float64) - two["vectors"], axis=1)
    assert (apart <= two["errors"]).all()


def claimed(form, sections):
    out = io.BytesIO()
    writer = ContainerWriter(out, "test", by_ranges=True)
    told = np.zeros((), FORM)
    told["form"] = form
    writer.put("vecc", told)
    for kind, data in sections.items():
        writer.put(kind, data)
    writer.finish()
    return out


@pytest.mark.parametrize(
    ("form", "sections", "said"),
    [
        (4, {}, "form 4"),
        (1, {"vecs": bytes(4 * 12), "vece": bytes(16)}, "vecs has 48 bytes, not 24"),
        (1, {"vecs": bytes(24)}, "vece is missing"),
        (1, {"vecs": bytes(24), "vece": np.full(4, np.nan, "<f4")}, "vece: not all is 0 or more"),
        (1, {"vecs": bytes(24), "vece": np.full(4, -1, "<f4")}, "vece: not all is 0 or more"),
        (1, {"vecs": np.full(12, np.inf, "<f2"), "vece": bytes(16)}, "not finite"),
        (1, {"vecs": bytes(24), "vece": bytes(16), "vecq": bytes(16)}, "vecq beside"),
        (2, {"vecs": bytes(12), "vece": bytes(16)}, "vecq is missing"),
        (3, {"vecs": bytes(48)}, "vecs beside vectors of form none"),
        (
            2,
            {
                "vecs": np.full(12, 127, "i1"),
                "vece": bytes(16),
                "vecq": np.full(4, 3e38, "<f4"),
            },
            "not finite",
        ),
    ],
)
def test_what_a_blob_claims_is_held_to_what_it_has(form, sections, said, tmp_path):
    with pytest.raises(BlobFormatError, match=said):
        read(claimed(form, sections), 4, 3, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_every_row_is_backed_by_bytes(form):
    assert 0 < stored_vectors.least_bytes(form, 10, 1) <= 40
    assert stored_vectors.least_bytes(form, 10, 768) <= 30720
