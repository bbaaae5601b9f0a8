import pytest

from puffin_ann.lake.commit import commit_index_file


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.0)
