"""The page as an application: to whom it answers, with which headers, and how it is found."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from puffin_ann import __version__
from puffin_ann.airflow.page import application as application_module
from puffin_ann.airflow.page.database import Known
from puffin_ann.airflow.page.plugin import PuffinAnnPlugin, serve
from tests.support.cockpit.cockpit_rows import document
from tests.support.cockpit.page_rows import dags, known
from tests.support.paths import ROOT

PLUGINS = ROOT / "plugins"


class TestApplication:
    @pytest.fixture
    def application(self) -> Iterator[Any]:
        """The application of the page, made for this test: none is remembered."""
        application_module.application.cache_clear()
        yield application_module.application()
        application_module.application.cache_clear()

    @pytest.fixture
    def client(self, application, monkeypatch) -> TestClient:
        """A user who may read the DAGs of `words` and start none."""
        everything = (*dags("words"), *dags("veiled"))
        documents = [document("words"), document("veiled")]

        def read(readable: set[str]) -> Known:
            return known(
                *(dag for dag in everything if dag.dag_id in readable), documents=documents
            )

        monkeypatch.setattr(application_module.database, "read", read)
        monkeypatch.setattr(application_module.database, "history", lambda _: [])
        readable = {dag.dag_id for dag in dags("words")}
        monkeypatch.setattr(application_module, "readable_dags", lambda _: readable)
        monkeypatch.setattr(application_module, "may_start", lambda *_: False)
        application.dependency_overrides[get_user] = lambda: SimpleNamespace(name="reader")
        return TestClient(serve)

    @pytest.mark.parametrize(
        "path", ["/", "/index?of=x", "/api", "/query?of=x&key=y", "/static/page.js"]
    )
    def test_nobody_sees_anything_without_a_login(self, application, path):
        answer = TestClient(serve).get(path)
        assert answer.status_code == 401
        assert "words" not in answer.text

    def test_a_failure_has_the_same_headers_and_tells_nothing_of_its_cause(
        self, client, monkeypatch
    ):
        def fail(_: set[str]) -> Known:
            raise OSError("refused by postgresql://svc:S3cretPw@db.internal/airflow")

        monkeypatch.setattr(application_module.database, "read", fail)
        answer = TestClient(serve, raise_server_exceptions=False).get("/")
        assert answer.status_code == 500
        assert (
            application_module.HEADERS.items()
            <= {name: answer.headers.get(name) for name in application_module.HEADERS}.items()
        )
        assert "API server" in answer.text
        assert "internal" not in answer.text

    @pytest.mark.parametrize("path", ["/", "/api"])
    def test_a_user_sees_the_indexes_whose_dags_they_may_read(self, client, path):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "ann_build_words" in answer.text or "words" in answer.text
        assert "veiled" not in answer.text

    def test_the_page_of_an_index_one_may_not_see_is_not_there(self, client):
        assert client.get("/index?of=words@demo.glove.words").status_code == 200
        for of in ("veiled@demo.glove.veiled", "none@demo.glove.none"):
            refused = client.get("/index", params={"of": of})
            assert refused.status_code == 404
            assert "veiled@" not in refused.text

    def test_who_may_start_no_run_has_no_button_and_no_search(self, client):
        page = client.get("/index?of=words@demo.glove.words").text
        assert "data-dag=" not in page
        assert 'id="query"' not in page
        assert client.get("/query?of=words@demo.glove.words&key=sun").status_code == 403

    @pytest.mark.parametrize("path", ["/", "/index?of=words@demo.glove.words", "/api"])
    def test_a_browser_is_told_to_run_our_own_files_alone(self, client, path):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"

    @pytest.mark.parametrize("path", ["/none", "/index", "/query", "/index?of=<b>", "/static/x"])
    def test_what_is_refused_has_the_same_headers(self, client, application, path):
        for refused in (client.get(path), client.post("/"), TestClient(serve).get("/none")):
            assert refused.status_code >= 400
            assert refused.headers["content-security-policy"].startswith("default-src 'none'")
            assert refused.headers["x-content-type-options"] == "nosniff"
            assert refused.headers["cache-control"] == "no-store"
        application.dependency_overrides.clear()
        nobody = client.get("/")
        assert nobody.status_code == 401
        assert nobody.headers["content-security-policy"].startswith("default-src 'none'")

    def test_a_browser_asks_for_a_file_again_and_gets_it_once(self, client):
        first = client.get("/static/uPlot.iife.min.js")
        assert first.headers["content-type"].startswith("text/javascript")
        again = client.get(
            "/static/uPlot.iife.min.js", headers={"If-None-Match": first.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")

    def test_the_collector_of_garbage_does_not_look_through_airflow_for_a_page(self, application):
        assert gc.get_freeze_count() > 100_000

    def test_nothing_changes_by_a_request(self, application):
        methods = {method for route in application.routes for method in route.methods}
        assert methods <= {"GET", "HEAD"}

    @pytest.mark.parametrize(
        "path",
        ["/docs", "/openapi.json", "/redoc", "/static/vendored.txt", "/static/../application.py"],
    )
    def test_it_has_no_other_page(self, client, path):
        assert client.get(path).status_code == 404


def test_airflow_finds_the_page_once_and_its_place_in_the_navigation():
    from airflow.plugins_manager import _get_plugins

    plugins, errors = _get_plugins()
    assert errors == {}
    (plugin,) = (plugin for plugin in plugins if plugin.name == PuffinAnnPlugin.name)
    assert isinstance(plugin, PuffinAnnPlugin)
    (mounted,) = plugin.fastapi_apps
    (view,) = plugin.external_views
    assert view["href"] == mounted["url_prefix"].removeprefix("/") + "/"


@pytest.mark.parametrize(("is_installed", "found"), [(True, 0), (False, 1)])
def test_the_plugins_folder_has_the_page_where_the_package_is_not_installed(
    is_installed, found, monkeypatch
):
    from airflow._shared.plugins_manager import _load_plugins_from_plugin_directory

    known = ["puffin_ann"] if is_installed else []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: known)
    plugins, errors = _load_plugins_from_plugin_directory(str(PLUGINS))
    assert (len(plugins), errors) == (found, {})


def test_airflow_lists_the_package_among_its_providers():
    from airflow.providers_manager import ProvidersManager

    assert ProvidersManager().providers["puffin-ann"].version == __version__
