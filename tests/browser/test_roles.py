"""Who sees what on the page, by the users of each of Airflow's auth managers; and what it costs."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.cockpit.cockpit import REAL, Cockpit
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

WORDS = "/puffin-ann/index?of=words@demo.glove.words"
QUERY = f"/puffin-ann/query?of={REAL}@demo.real.words&key=monday"
PATHS = ("/puffin-ann/", "/puffin-ann/api", WORDS, QUERY, "/puffin-ann/static/page.js")
LIMIT_SECONDS = 2.0
"""Of processor time for a page of 200 indexes. It takes a tenth; a busy machine counts more."""


@pytest.fixture(scope="module")
def with_fab(tmp_path_factory) -> Iterator[Cockpit]:
    server = Cockpit(tmp_path_factory.mktemp("fab") / "local", "fab")
    try:
        server.start(12)
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["simple", "fab"])
def server(request) -> Cockpit:
    return request.getfixturevalue({"simple": "cockpit", "fab": "with_fab"}[request.param])


def told(server: Cockpit, user: str) -> dict[str, list[str]]:
    """Return the kinds of DAGs of each index that a user is told of."""
    status, text, headers = server.get("/puffin-ann/api", server.token(user))
    assert (status, headers.get_content_type()) == (200, "application/json")
    return {each["index"]: sorted(each["dags"]) for each in json.loads(text)["indexes"]}


def test_nobody_sees_anything_without_a_login(server):
    for path in PATHS:
        for token in ("", "x.y.z"):
            status, text, _ = server.get(path, token)
            assert status in (401, 403), path
            assert "words" not in text


def test_an_admin_sees_and_may_do_all(server):
    token = server.token("admin")
    assert {"words", "words_2019", "invoices", REAL} <= told(server, "admin").keys()
    assert "data-dag=" in server.get(WORDS, token)[1]
    status, text, _ = server.get(QUERY, token)
    assert status == 200, text
    assert [near["key"] for near in json.loads(text)["neighbours"]][:1] == ["tuesday"]


def test_a_viewer_sees_all_and_may_start_and_search_nothing(server):
    token = server.token("viewer")
    assert told(server, "viewer") == told(server, "admin")
    assert "data-dag=" not in server.get(WORDS, token)[1]
    assert server.get(QUERY, token)[0] == 403


def test_a_user_without_rights_is_told_of_no_index(server):
    token = server.token("nobody")
    assert told(server, "nobody") == {}
    status, text, _ = server.get("/puffin-ann/", token)
    assert (status, "No index that you may see is declared" in text) == (200, True)
    assert server.get(WORDS, token)[0] == server.get(QUERY, token)[0] == 404


def test_who_may_read_one_dag_is_told_of_its_index_alone(with_fab):
    token = with_fab.token("reader")
    assert told(with_fab, "reader") == {"words": ["build"]}
    status, text, _ = with_fab.get(WORDS, token)
    assert status == 200
    assert "ann_build_words" in text
    assert "ann_refresh_words" not in text
    assert with_fab.get(QUERY, token)[0] == 404


def test_every_answer_lets_a_browser_run_our_own_files_alone_and_nothing_is_changed(server):
    token = server.token("admin")
    for path in PATHS:
        _, _, headers = server.get(path, token)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert server.get(path, token, method=method)[0] == 405, (method, path)


def test_a_page_of_two_hundred_indexes_asks_nothing_but_airflows_database(cockpit):
    cockpit.seed(200)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.cockpit.page_cost"],
            env=cockpit.variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        cockpit.seed(30)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["asked"], found["rows"]) == ([], 200)
    assert found["seconds"] < LIMIT_SECONDS


WATCHER = """
import json, sys
from airflow.models.asset import DagScheduleAssetReference
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.utils.session import create_session
from sqlalchemy import select
starts = DagScheduleAssetReference
with create_session() as session:
    asset = session.scalar(select(starts.asset_id).where(starts.dag_id == "ann_refresh_words"))
    told = AssetStateStoreModel(asset_id=asset, key="problem", value=json.dumps(sys.argv[1]))
    session.merge(told)
"""
"""What the API of Airflow does when the watcher of a table keeps something with its Asset."""


def test_what_keeps_a_table_from_being_watched_is_told_until_it_is_watched_again(cockpit):
    def words() -> dict:
        _, text, _ = cockpit.get("/puffin-ann/api", cockpit.token("viewer"))
        return next(each for each in json.loads(text)["indexes"] if each["index"] == "words")

    before = words()["state"]
    assert before != "failing"
    cockpit.run(sys.executable, "-c", WATCHER, "no catalog is called demo")
    assert words()["state"] == "failing"
    assert words()["reason"].endswith("is not watched: no catalog is called demo")
    cockpit.run(sys.executable, "-c", WATCHER, "")
    assert words()["state"] == before
