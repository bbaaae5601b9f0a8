from importlib import import_module
from typing import Any

import pytest
import yaml

from benchmarks import data, report, results
from benchmarks.__main__ import FAMILIES
from benchmarks.failures import CannotMeasureError
from benchmarks.report import bound, figure, reason, render
from benchmarks.results import Plot, Result, Row, save, saved


def row(**changes: Any) -> Row:
    fields = {
        "key": "hnswlib-glove-0.95",
        "what": "`vamana` ÷ hnswlib",
        "ours": "9,000/s",
        "theirs": "4,500/s",
        "measured": 2.0,
        "least": 2.5,
        "aim": 3.6,
    }
    return Row(**{**fields, **changes})


@pytest.mark.parametrize(
    ("measured", "below", "reached"),
    [(2.5, False, True), (2.49, False, False), (2.5, True, True), (2.51, True, False)],
)
def test_a_bound_is_reached_on_its_good_side_or_exactly(measured, below, reached):
    assert row(measured=measured, below=below).reached is reached


def test_a_line_that_could_not_be_measured_reaches_nothing():
    assert not row(measured=None, below=True).reached
    assert figure(row(measured=None)) == "–"


def test_small_figures_keep_three_decimals_and_units_are_told():
    assert figure(row(measured=0.0213)) == "0.021"
    assert figure(row(measured=0.312, unit="s")) == "0.31 s"
    assert bound(row(below=True, least=0.05), "least") == "≤ 0.05"


def test_the_document_holds_both_absolute_figures_and_says_what_falls_short():
    text = render([Result(family="graphs", rows=[row(), row(key="x", what="fine", measured=4.0)])])
    assert "| `vamana` ÷ hnswlib | 9,000/s | 4,500/s | **2.00** | ≥ 2.5 | ≥ 3.6 | short |" in text
    assert "1 of 2 lines reach their bound" in text
    assert "- **`vamana` ÷ hnswlib** (2.00, bound ≥ 2.5):" in text
    assert "- **fine**" not in text


def test_the_document_of_another_machine_leaves_the_pictures_to_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "IMAGES", tmp_path / "images")
    curve = Plot(key="curve", title="A curve", curves={"ours": [(0.9, 10.0), (0.95, 5.0)]})
    report.write([Result(family="graphs", rows=[row()], plots=[curve])], tmp_path / "other.md")
    text = (tmp_path / "other.md").read_text()
    assert "0 of 1 lines reach their bound" in text
    assert "images/" not in text
    assert not (tmp_path / "images").exists()


def test_a_family_that_failed_stands_in_the_table_with_its_reason():
    text = render([Result(family="lists", failure="no faiss here")])
    assert "| lists | – | – | – | – | – | not measured: no faiss here |" in text


def test_the_longest_key_gives_the_reason():
    reasons = {"hnswlib": "general", "hnswlib-glove": "special\n"}
    assert reason(row(), reasons) == "special"
    assert reason(row(key="hnswlib-gloss"), reasons) == "general"


def test_results_are_kept_until_they_are_measured_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "bench")
    save(Result(family="b", rows=[row()]))
    save(Result(family="a", failure="first"))
    save(Result(family="a", failure="second"))
    assert [result.failure for result in saved(["a", "missing", "b"])] == ["second", ""]
    assert saved(["b"])[0].rows == [row()]


def test_families_that_are_not_measured_anew_keep_their_lines_and_days(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    save(Result(family="a", rows=[row()], measured_on="2026-01-01"))
    save(Result(family="b", rows=[row(what="other")], measured_on="2026-01-01"))
    results.kept(["a", "b"])
    save(Result(family="a", failure="no peer here"))
    save(Result(family="b", rows=[row(what="newer")], measured_on="2026-02-01"))

    text = render(results.kept(["a", "b"]))

    assert text.count("| what |") == 1
    assert "| newer |" in text
    assert "| other |" not in text
    assert "not measured" not in text
    assert "- measured on 2026-02-01, a processor that is not known: b\n" in text
    assert "- measured on 2026-01-01, a processor that is not known: a\n" in text


def test_families_without_a_result_are_named():
    text = render([Result(family="a", rows=[row()])], families=["a", "b", "c"])
    assert "- not measured: b, c\n" in text
    assert "- not measured" not in render([Result(family="a", rows=[row()])], families=["a"])


def test_missing_data_is_told_with_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("BENCH_DATA", raising=False)
    with pytest.raises(CannotMeasureError, match="BENCH_DATA is not set"):
        data.path_of("glove-100d")
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    with pytest.raises(CannotMeasureError, match=r"glove-100d-100k\.parquet does not exist"):
        data.path_of("glove-100d")


def test_constants_that_are_told_to_be_tuned_are_there():
    told = yaml.safe_load((report.HERE / "tuned.yaml").read_text())
    assert told
    for one in told:
        module = import_module(f"puffin_ann.{one['at']}")
        missing = [name for name in one["names"] if not hasattr(module, name)]
        assert missing == []


def test_families_that_are_told_to_score_are_there():
    for one in yaml.safe_load((report.HERE / "tuned.yaml").read_text()):
        for beginning in one["scored"]:
            assert any(family.startswith(beginning) for family in FAMILIES), beginning


def test_the_document_tells_which_constants_were_tuned_on_what_is_scored():
    text = render([Result(family="graphs", rows=[row()])])
    assert "| `ann/vamana/packed/layout.py`: `NARROWEST` | GloVe, 99,000 × 100" in text
    assert "| `graphs-glove-100d…`, `graphs-gloss…` |" in text
    assert "| sentences that no family scores | none |" in text
