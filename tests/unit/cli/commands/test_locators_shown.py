"""Where rows are is shown whole, however narrow the terminal is."""

import io
import re

import pyarrow as pa

from puffin_ann.cli import search_answers
from puffin_ann.terminal import LiteralConsole

NAME = "00000-0-8c2f1e62-3a70-4f0e-9c1b-4f7d1a2b3c4d-0-00001-of-00128.parquet"


def test_a_locator_is_folded_and_not_cut_off(monkeypatch):
    console = LiteralConsole(file=io.StringIO(), width=80)
    monkeypatch.setattr(search_answers, "console", console)
    place = {"file": f"s3://warehouse/shop/words/data/{NAME}", "row_group": 3, "row_offset": 17}
    answers = pa.table({"query": [0], "rank": [1], "distance": [0.25], "locator": [place]})
    search_answers.show_answers(answers, ["coffee"], [])
    shown = console.file.getvalue()
    assert "…" not in shown
    cells = [line.split("│")[4] for line in shown.splitlines() if line.startswith("│")]
    assert re.sub(r"\s", "", "".join(cells)) == f"{NAME}rowgroup3row17"
