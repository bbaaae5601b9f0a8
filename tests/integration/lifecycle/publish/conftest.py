import pytest

from puffin_ann.lake.commit import publish as publishing


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "WAIT_SECONDS", 0.0)
