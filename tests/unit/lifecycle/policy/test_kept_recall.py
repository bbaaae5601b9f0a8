"""A changed shard has to find what is declared, or as much as the one that it replaces."""

import numpy as np
import pytest

from puffin_ann.lifecycle.evaluate.measure import Measure
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall, ShardRecalls, keeps, loses

TARGET = 0.95


def found(recall, chance=0.01):
    return ShardRecall(recall=recall, low=recall - chance, high=min(1.0, recall + chance))


def test_a_shard_that_reaches_the_target_is_kept_however_good_the_published_one_is():
    assert keeps(found(0.95), found(0.999), TARGET)
    assert not loses(found(0.95), found(0.999), TARGET)


def test_rows_may_be_inserted_into_a_shard_that_never_reached_the_target():
    assert keeps(found(0.93), found(0.93), TARGET)
    assert not keeps(found(0.929), found(0.93), TARGET)
    assert not keeps(found(0.93), None, TARGET)


@pytest.mark.parametrize("recall", [0.91, 0.93])
def test_a_shard_built_again_may_find_less_than_the_published_one_by_chance(recall):
    assert not loses(found(recall), found(0.93), TARGET)


def test_a_shard_that_truly_lost_recall_is_refused_whatever_the_published_one_found():
    assert loses(found(0.9), found(0.93), TARGET)
    assert loses(found(0.9), found(0.99), TARGET)
    assert loses(found(0.5), found(0.53), TARGET)


def test_without_a_published_one_the_target_is_the_bar():
    assert loses(found(0.93), None, TARGET)
    assert not loses(found(0.945), None, TARGET)


def test_equal_shards_are_hardly_ever_refused_and_worse_ones_nearly_always():
    random = np.random.default_rng(1)

    def measured(share):
        measure = Measure.of(random.binomial(10, share, 600) / 10)
        return ShardRecall(recall=measure.recall, low=measure.low, high=measure.high)

    equal = [loses(measured(0.9), measured(0.9), TARGET) for _ in range(1000)]
    worse = [loses(measured(0.87), measured(0.9), TARGET) for _ in range(1000)]
    assert np.mean(equal) < 0.01
    assert np.mean(worse) > 0.95


def test_the_bar_is_what_a_shard_found_first_for_as_many_neighbours():
    recalls = ShardRecalls().noting({3: found(0.93)}, 10)
    assert recalls.of(3, 10) == found(0.93)
    assert recalls.of(3, 5) is recalls.of(4, 10) is None
    assert recalls.noting({}, 5) == recalls
    more = recalls.noting({4: found(0.9)}, 10)
    assert (more.of(3, 10), more.of(4, 10)) == (found(0.93), found(0.9))
    assert more.noting({4: found(0.9)}, 5).of(3, 10) is None
