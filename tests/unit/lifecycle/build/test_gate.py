"""The gate's last word: what a run measured, on local disk and without, reaches the target."""

import pytest

from puffin_ann.errors import RecallTooLowError
from puffin_ann.lifecycle.build.gate import require_passed
from puffin_ann.lifecycle.documents.run import Gated, StagedFile


def gated(**measured):
    fields = {"k": 10, "queries": 200, "low": 0.94, "high": 0.98, "target": 0.95, "recall": 0.96}
    fields |= {"search_width": 64, "probe_partitions": 8, "scan_partitions": 12, "seconds": 1.0}
    staged = StagedFile.model_construct(uri="s3://bucket/staged-index.puffin")
    return Gated.model_construct(staged_index=staged, **(fields | measured))


def test_a_run_of_which_both_searches_reach_the_target_goes_on():
    require_passed(gated(scan_recall=0.95), "words")


def test_a_search_from_local_disk_under_the_target_is_refused():
    with pytest.raises(RecallTooLowError, match=r"recall@10 is 0\.9400.*width 64.*target of 0\.95"):
        require_passed(gated(recall=0.94, scan_recall=1.0), "words")


def test_a_search_by_ranges_under_the_target_is_refused():
    with pytest.raises(
        RecallTooLowError, match=r"no shard on local disk.* 12 nearest cells.*0\.9400 .*0\.95"
    ):
        require_passed(gated(scan_recall=0.94), "words")
