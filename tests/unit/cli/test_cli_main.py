from pickle import UnpicklingError

import pytest

from puffin_ann.cli import main


def test_a_damaged_cache_of_kernels_is_named_without_a_traceback(monkeypatch, capsys):
    def command():
        raise UnpicklingError("pickle data was truncated")

    monkeypatch.setattr(main, "app", command)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere/kernels")
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 6
    said = capsys.readouterr().err
    assert "/somewhere/kernels are damaged" in said
    assert "remove that folder" in said
    assert "Traceback" not in said
