from types import SimpleNamespace

import pytest

from puffin_ann.lake.metadata.files import MetadataReader
from puffin_ann.lake.metadata.foreign import Reach
from puffin_ann.lifecycle.retention.withheld import Protection

TABLE = SimpleNamespace(location=lambda: "s3://lake/db/words/", properties={})


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/db/other/metadata/ann-x.puffin",
        "s3://lake/db/words/metadata-of-others/ann-x.puffin",
        "s3://lake/db/words/metadata/../../other/ann-x.puffin",
        "s3://lake/db/words/metadata/%2e%2e/%2e%2e/other/ann-x.puffin",
    ],
)
def test_what_lies_outside_of_the_tables_metadata_folder_or_may_do_so_is_kept(location):
    protection = Protection(Reach(TABLE), MetadataReader())
    assert "outside of s3://lake/db/words/metadata" in protection.why_file_kept(location)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_what_lies_in_it_and_nobody_names_may_go(scheme):
    protection = Protection(Reach(TABLE), MetadataReader())
    assert protection.why_file_kept(f"{scheme}://lake/db/words/metadata/ann-x.puffin") == ""
