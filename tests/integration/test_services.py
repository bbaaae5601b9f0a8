"""The stack itself: what the other integration tests take for granted."""

import pytest
from requests.exceptions import ConnectionError

from tests.support.lifecycle import builds
from tests.support.servers import catalog_proxy as faults

pytestmark = pytest.mark.slow


def test_spark_and_pyiceberg_see_each_others_commits(lake):
    table = lake.create(builds.rows(range(10)))
    lake.sql("DELETE FROM {t} WHERE id < 3")
    lake.sql("INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id = 5")
    table.refresh()
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [*range(3, 10), 105]
    table.delete("id = 9")
    assert lake.sql("SELECT count(*) FROM {t}")[0][0] == 7
    assert table.metadata_location.removeprefix("file://") in lake.files(table)
    assert not lake.leaked(table)


def test_a_lost_reply_leaves_the_commit_in_the_catalog(rest_lake, proxied_lake, catalog_proxy):
    table = rest_lake.create(builds.rows(range(10)))
    seen = proxied_lake.load()
    for fault, added in ((faults.lose_request, 0), (faults.lose_reply, 1)):
        before = len(table.refresh().snapshots())
        catalog_proxy.faults = [fault]
        with pytest.raises(ConnectionError):
            seen.refresh().append(builds.rows(range(10, 12)))
        assert len(table.refresh().snapshots()) == before + added


def test_a_held_commit_lands_when_it_is_released(rest_lake, proxied_lake, catalog_proxy):
    table = rest_lake.create(builds.rows(range(10)))
    catalog_proxy.faults = [catalog_proxy.hold]
    with pytest.raises(ConnectionError):
        proxied_lake.load().append(builds.rows(range(10, 12)))
    assert len(table.refresh().snapshots()) == 1
    status, _, _ = catalog_proxy.held.pop().send()
    assert status == 200
    assert len(table.refresh().snapshots()) == 2
