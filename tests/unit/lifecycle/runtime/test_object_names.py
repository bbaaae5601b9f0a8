"""Objects are told apart by their names, whichever way the folder is spelt."""

import pytest

from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.runtime.object_names import names_with_folders, object_name

FILE = "metadata/ann-words-1-2-n3-4.puffin"


@pytest.mark.parametrize(
    "location",
    [
        f"file:///w/t/{FILE}",
        f"/w//t/./{FILE}",
        f"abfss://c@a.dfs.core.windows.net/t/{FILE}",
        f"hdfs://nn:8020/t/{FILE}",
        f"s3://b/link/{FILE.replace('.puffin', '%2epuffin')}",
    ],
)
def test_a_file_has_one_name_however_its_folder_is_spelt(location):
    assert object_name(location) == "ann-words-1-2-n3-4.puffin"


def test_the_folder_of_a_run_is_named_by_what_is_named_in_it():
    names = names_with_folders(["s3a://b/t/metadata/_ann-staging//words/run-1/trial.puffin"])
    assert object_name("s3://b/t/metadata/_ann-staging/words/run-1") in names
    assert object_name("s3://b/t/metadata/_ann-staging/words/run-2") not in names


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("file:///w//t/./x", "/w/t/x", True),
        ("file:/w/t/", "file:///w/t//", True),
        ("/w/t/.hidden", "/w/t/hidden", False),
        ("s3a://b/t/x", "s3://b/t/x", True),
        ("s3://b//t/x", "s3://b/t/x", False),  # keys of two objects
        ("abfss://c@a/t", "abfs://c@a/t", True),
        ("gcs://b/t", "gs://b/t", True),
        ("hdfs://nn:8020/t", "hdfs://nn/t", True),
        ("hdfs://nn:9000/t", "hdfs://nn/t", False),
    ],
)
def test_one_spelling_stands_for_one_place(one, other, is_same):
    assert (canonical(one) == canonical(other)) == is_same
