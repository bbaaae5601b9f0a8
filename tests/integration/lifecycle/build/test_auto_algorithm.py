import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.build import auto_algorithm, stages
from puffin_ann.lifecycle.documents.run import TRAIN, Choice, Trained, load
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.report.status import as_text, status
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


@pytest.fixture
def many_words(words):
    words.append(builds.rows(range(60, auto_algorithm.FEWEST_ROWS + 100)))
    return words.refresh()


def test_auto_measures_every_engine_records_it_and_builds_the_fastest(many_words):
    declared = builds.declaration(algorithm="auto", shards=1, recall_target=0.9)
    builds.build(declared, "run")
    many_words.refresh()
    (one,) = status(many_words)
    assert [trial.algorithm for trial in one.trials] == list(auto_algorithm.CANDIDATES)
    fast_enough = [trial for trial in one.trials if trial.recall >= 0.9]
    best = max(fast_enough, key=lambda trial: trial.queries_per_second)
    assert one.algorithm == best.algorithm
    assert f"{best.algorithm}: {best.queries_per_second:,.0f} queries" in as_text([one])
    index = open_index(many_words, builds.INDEX)
    current = many_words.current_snapshot().snapshot_id
    builds.assert_answers(index, many_words, current, QUERIES, 5)
    again = build.plan_build(declared, run_id="again")
    assert (again.action, one.fingerprint) == ("none", declared.fingerprint())


@pytest.mark.parametrize("algorithm", auto_algorithm.CANDIDATES)
def test_whatever_is_chosen_is_what_shards_are_made_with(words, monkeypatch, algorithm):
    monkeypatch.setattr(auto_algorithm, "choose", lambda *_, **__: Choice(algorithm=algorithm))
    builds.build(builds.declaration(algorithm="auto"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert index.version.routing.algorithm == algorithm
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 5)


def test_a_retry_keeps_the_choice_even_if_training_is_done_again(words, monkeypatch):
    plan = build.plan_build(builds.declaration(algorithm="auto"), run_id="run")
    run = RunRef.planned(plan)
    monkeypatch.setattr(auto_algorithm, "choose", lambda *_, **__: Choice(algorithm="hnsw"))
    stages.train(InProcess(), run)
    staging = Workspace.open(run).staging
    words.io.delete(staging.uri(TRAIN))
    monkeypatch.setattr(auto_algorithm, "choose", lambda *_, **__: Choice(algorithm="ivf_pq"))
    stages.train(InProcess(), run)
    assert load(staging, TRAIN, Trained).choice.algorithm == "hnsw"


def test_auto_compares_small_tables_whole(words):
    builds.build(builds.declaration(algorithm="auto"), "run")
    (one,) = status(words.refresh())
    assert (one.algorithm, one.trials) == ("exact", ())


@pytest.mark.parametrize("needed", [1, 8, 9, 37, 700, 2048])
def test_the_smallest_width_is_found_to_an_eighth(needed):
    width, recall = auto_algorithm.smallest_width(lambda width: min(1.0, width / needed), 1.0)
    assert recall == 1.0
    assert needed <= width <= max(8, needed * 8 // 7 + 1)


def test_a_target_that_nothing_reaches_gives_the_widest():
    assert auto_algorithm.smallest_width(lambda width: 0.5, 0.9) == (auto_algorithm.WIDEST, 0.5)
