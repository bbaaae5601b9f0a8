"""Steps are shown to whoever watches a terminal, and put into no pipe and no file."""

import io
import sys

import pytest

from puffin_ann.cli.progress import steps


class Terminal(io.StringIO):
    """A stream that says that somebody reads it as it comes."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch, out: io.StringIO, err: io.StringIO, *, as_json: bool) -> tuple[str, str]:
    """What a run of one step writes to each stream."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with steps(as_json=as_json) as step, step("train centroids"):
        pass
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("color", ["", "1"])
def test_nothing_of_it_is_put_into_pipes(monkeypatch, as_json, color):
    monkeypatch.setenv("FORCE_COLOR", color)
    assert shown(monkeypatch, io.StringIO(), io.StringIO(), as_json=as_json) == ("", "")


def test_whoever_watches_the_output_is_shown_steps_there(monkeypatch):
    out, err = shown(monkeypatch, Terminal(), Terminal(), as_json=False)
    assert ("train centroids" in out, err) == (True, "")


@pytest.mark.parametrize(("out", "as_json"), [(io.StringIO, False), (Terminal, True)])
def test_whoever_watches_errors_alone_is_shown_steps_there(monkeypatch, out, as_json):
    said, err = shown(monkeypatch, out(), Terminal(), as_json=as_json)
    assert (said, "train centroids" in err) == ("", True)


def test_names_of_steps_are_printed_literally(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with steps(as_json=True) as step, step("[/b]\x1b]0;owned\x07"):
        pass
    assert "[/b]" in sys.stderr.getvalue()
    assert "\x1b]0;" not in sys.stderr.getvalue()
