"""Product quantisation against what numpy says of it."""

import numpy as np
import pytest

from puffin_ann.ann.clustering import kernels_pq, product_quantisation


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def whole_numbers(n, d, seed=0):
    """Small whole numbers, whose float32 sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, (n, d)).astype(np.float32)


def decoded(codebook, offsets, codes):
    parts = [
        codebook[j][codes[:, j]][:, : offsets[j + 1] - offsets[j]] for j in range(len(codebook))
    ]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(("dimension", "subspaces"), [(100, 25), (100, 7), (5, 5), (2, 1), (16, 3)])
def test_sub_spaces_cover_every_dimension_and_differ_by_one_at_most(dimension, subspaces):
    offsets = product_quantisation.subspace_offsets(dimension, subspaces)

    widths = np.diff(offsets.astype(np.int64))
    assert offsets.dtype == np.uint32
    assert (offsets[0], offsets[-1], len(widths)) == (0, dimension, subspaces)
    assert widths.min() >= 1
    assert widths.max() - widths.min() <= 1


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 1200])
def test_codes_name_the_nearest_word_and_the_lowest_of_equals(rows):
    vectors, offsets = whole_numbers(rows, 11), product_quantisation.subspace_offsets(11, 3)
    codebook = np.zeros((3, 32, 4), np.float32)
    for j in range(3):
        width = offsets[j + 1] - offsets[j]
        codebook[j, :, :width] = whole_numbers(32, width, j)
        codebook[j, 20] = codebook[j, 3]

    codes = product_quantisation.encode(vectors, codebook, offsets, 2)

    for j in range(3):
        part = vectors[:, offsets[j] : offsets[j + 1]]
        words = codebook[j, :, : part.shape[1]]
        reference = ((part[:, None] - words[None]) ** 2).sum(axis=2).argmin(axis=1)
        assert np.array_equal(codes[:, j], reference)


@pytest.mark.parametrize("by_product", [False, True])
def test_tables_hold_what_each_word_contributes(by_product):
    offsets, query = product_quantisation.subspace_offsets(11, 3), whole_numbers(1, 16, 5)[0]
    codebook = whole_numbers(3 * 16, 4).reshape(3, 16, 4)
    tables = np.empty((3, 16), np.float32)

    words = product_quantisation.transpose_codebook(codebook)
    kernels_pq.tables(words, offsets, query, by_product, tables)

    for j in range(3):
        part = query[offsets[j] : offsets[j + 1]]
        words = codebook[j, :, : len(part)]
        reference = -(words @ part) if by_product else ((words - part) ** 2).sum(axis=1)
        assert np.array_equal(tables[j], reference)


def test_more_bits_and_more_sub_spaces_lose_less():
    vectors = normal(3000, 24)

    def loss(subspaces, bits):
        offsets = product_quantisation.subspace_offsets(24, subspaces)
        codebook = product_quantisation.train(vectors, offsets, bits, seed=1, threads=2)
        codes = product_quantisation.encode(vectors, codebook, offsets, 2)
        return float(((vectors - decoded(codebook, offsets, codes)) ** 2).mean())

    losses = [loss(3, 4), loss(6, 4), loss(6, 8), loss(12, 8)]

    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.1


def test_a_codebook_does_not_depend_on_the_threads():
    vectors, offsets = normal(2000, 10), product_quantisation.subspace_offsets(10, 4)

    one = product_quantisation.train(vectors, offsets, 6, seed=3, threads=1)
    three = product_quantisation.train(vectors, offsets, 6, seed=3, threads=3)

    assert one.tobytes() == three.tobytes()
    assert (
        one.tobytes()
        != product_quantisation.train(vectors, offsets, 6, seed=4, threads=1).tobytes()
    )


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_fewer_rows_than_words_are_coded_without_loss(rows):
    vectors, offsets = normal(rows, 7), product_quantisation.subspace_offsets(7, 2)

    codebook = product_quantisation.train(vectors, offsets, 5, seed=0, threads=1)

    codes = product_quantisation.encode(vectors, codebook, offsets, 1)
    assert codebook.shape == (2, 32, 4)
    assert np.allclose(decoded(codebook, offsets, codes), vectors, atol=1e-6)
