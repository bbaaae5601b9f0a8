"""A stage is done when its document is there, and whole."""

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import StagingError
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.refresh import ADDED, AddedRows
from puffin_ann.lifecycle.documents.run import GATE, PLAN, Trained, done, load


@pytest.fixture
def staging(tmp_path) -> Staging:
    return Staging(PyArrowFileIO(), f"{tmp_path}/metadata/_ann-staging/words/run")


@pytest.mark.parametrize("torn", [b"", b'{"tasks": [], "sec', b"\0" * 40])
def test_a_torn_document_is_none_and_its_stage_is_done_again(staging, torn) -> None:
    staging.put_new(ADDED, torn)
    assert done(staging, ADDED, AddedRows) is None
    assert staging.put_new(ADDED, AddedRows(tasks=(), seconds=1.0).model_dump_json().encode())
    assert done(staging, ADDED, AddedRows) == AddedRows(tasks=(), seconds=1.0)


def test_a_document_of_another_kind_is_refused_and_kept(staging) -> None:
    staging.put_new(GATE, AddedRows(tasks=(), seconds=1.0).model_dump_json().encode())
    with pytest.raises(StagingError, match="is not valid"):
        done(staging, GATE, Trained)
    assert staging.exists(GATE)


def test_a_plan_is_never_taken_for_torn(staging) -> None:
    staging.put_new(PLAN, b"")
    with pytest.raises(StagingError, match="is not valid"):
        done(staging, PLAN, AddedRows)
    with pytest.raises(StagingError, match="is not valid"):
        load(staging, PLAN, AddedRows)
    assert staging.exists(PLAN)
