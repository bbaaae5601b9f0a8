"""Which blobs of a new version are copied, and which are named where they are: pure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.lifecycle.publish import layers
from puffin_ann.lifecycle.publish.layers import layers_of
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.search.version.index_files import BlobPlace

FOLDER = "s3://bucket/t/metadata"


def place(file, shard, length, file_length=None, offset=4):
    blob = BlobMetadata("t", (7,), 1, 1, offset, length, None, {"index": "i", "shard": str(shard)})
    return BlobPlace(f"{FOLDER}/{file}.puffin", file_length or offset + length + 100, blob)


def named_files(found):
    return {path.rpartition("/")[2].removesuffix(".puffin") for path in found.files}


def held(places):
    return {place.path for place in places}


def test_a_small_index_is_copied_whole():
    places = [place("a", 0, 500), place("b", 1, 500)]
    found = layers_of(places, held(places), 1000)
    assert (found.named, found.directory) == ((), None)
    assert named_files(layers_of(places, held(places), 999)) == {"a", "b"}


def test_what_no_tag_holds_is_copied():
    places = [place("a", 0, 500), place("staged", 1, 500)]
    found = layers_of(places, {places[0].path}, 0)
    assert (named_files(found), [blob.path for blob in found.copied]) == ({"a"}, [places[1].path])


def test_a_large_file_of_which_little_is_needed_is_copied():
    places = [place("a", 0, 25_000, 100_001), place("b", 1, 25_000, 100_000)]
    assert named_files(layers_of(places, held(places), 0)) == {"b"}
    places = [place("small", 0, 10, 60_000)]
    assert named_files(layers_of(places, held(places), 0)) == {"small"}


def test_of_too_many_files_those_are_left_that_are_larger_than_all_smaller_ones():
    sizes = [*range(1, 11), 56, 57, 1000]
    places = [place(f"f{size}", size, size) for size in sizes]
    found = layers_of(places, held(places), 0)
    assert named_files(found) == {"f56", "f57", "f1000"}
    assert len(layers_of(places[1:], held(places), 0).files) == layers.MOST_FILES
    places = [place(f"f{number:02}", number, 3**number) for number in range(13)]
    assert len(layers_of(places, held(places), 0).files) == layers.MOST_FILES - 1


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6), st.booleans()), max_size=60),
    st.integers(0, 10**6),
)
def test_each_blob_is_copied_or_named_and_the_directory_is_sound(drawn, whole_bytes):
    offsets = [4] * 31
    places = []
    for shard, (file, length, _) in enumerate(drawn):
        places.append(place(f"f{file}", shard, length, 10**9, offsets[file]))
        offsets[file] += length
    tagged = {one.path for one, (_, _, is_held) in zip(places, drawn, strict=True) if is_held}
    found = layers_of(places, tagged, whole_bytes)
    assert sorted([*found.copied, *found.named], key=str) == sorted(places, key=str)
    assert len(found.files) <= layers.MOST_FILES
    assert found.files <= tagged
    assert not found.files & {blob.path for blob in found.copied}
    if found.directory is not None:
        again = directory_blob.decode(directory_blob.encode(found.directory))
        assert again == found.directory


@pytest.mark.parametrize("refreshes", [100, 1000, 4000])
def test_a_byte_is_copied_again_a_few_times_only(refreshes):
    """Each refresh adds a blob of its own that stays; files are gathered as publications do."""
    places, copied = [place("build", 0, 10**9)], 0
    for number in range(1, refreshes + 1):
        places.append(place(f"n{number}", number, 1000))
        own = places[-1].path
        found = layers_of(places, held(places) - {own}, 0)
        copied += sum(blob.metadata.length for blob in found.copied)
        length = 100 + sum(blob.metadata.length for blob in found.copied)
        moved = [BlobPlace(own, length, blob.metadata) for blob in found.copied]
        places = [*found.named, *moved]
    assert copied / (1000 * refreshes) <= 1 + np.log2(refreshes) / 2
