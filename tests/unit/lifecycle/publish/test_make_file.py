"""Publishing tells how much of the file is there."""

from types import SimpleNamespace

from puffin_ann.lifecycle.publish.make_file import make_file
from puffin_ann.lifecycle.runtime.progress import current_meter


def test_the_meter_knows_how_many_bytes_are_written():
    lines = []

    def make(told) -> str:
        told(2_000_000)
        told(1_000_000)
        lines.append(current_meter().line(10))
        return "file:///new.puffin"

    assembly = SimpleNamespace(object_plan=SimpleNamespace(length=4_000_000), make=make)
    assert make_file(assembly) == "file:///new.puffin"
    assert lines == [
        "assemble the file: 75% done after 10 s; 3.0 of 4.0 MB, 0.3 MB/s; about 3 s left"
    ]
