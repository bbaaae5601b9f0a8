"""The page of vector indexes: what it shows, to whom, and that nothing in it can run."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from puffin_ann import __version__
from puffin_ann.airflow.page import application as application_module
from puffin_ann.airflow.page.html import COLUMNS, page_of
from puffin_ann.airflow.page.plugin import PuffinAnnPlugin, serve
from puffin_ann.airflow.page.rows import Row, row_of
from puffin_ann.declaration import declaration_files, load_declaration
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import build as run
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.settings import settings
from tests.support.paths import ROOT

PLUGINS = ROOT / "plugins"
EVIL = "<script>alert(1)</script>"
DECLARATION = """\
table: demo.glove.words
column: embedding
metric: l2
algorithm: exact
partitions_per_shard: 2
recall_target: 0.5
gate: {queries: 10, k: 1}
"""


@pytest.fixture
def application() -> Iterator[Any]:
    """The application of the page, made for this test: none is remembered."""
    application_module.application.cache_clear()
    yield application_module.application()
    application_module.application.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of declarations, one of which is there, and a catalog with the table it names."""
    catalog = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path / 'catalog.db'}",
        "WAREHOUSE": f"file://{tmp_path / 'warehouse'}",
    }
    for key, value in catalog.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEMO__{key}", value)
    # PyIceberg reads the environment when it is imported, so this process may have missed it.
    made = SqlCatalog("demo", **{key.lower(): value for key, value in catalog.items()})
    monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_catalog", lambda name, **_: made)
    made.create_namespace("glove")
    made.create_table("glove.words", schema=_rows(1).schema).append(_rows(40))
    (tmp_path / "indexes").mkdir()
    (tmp_path / "indexes" / "words.yaml").write_text(DECLARATION)
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path / "indexes"))
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    yield tmp_path / "indexes"
    settings.cache_clear()


def _rows(count: int) -> pa.Table:
    vectors = [[float(number), float(number % 7)] for number in range(count)]
    return pa.table({"embedding": pa.array(vectors, pa.list_(pa.float32()))})


def build(path: Path) -> None:
    planned = run.plan_build(load_declaration(path), run_id="test")
    planned_run = RunRef.planned(planned)
    stages.train(InProcess(), planned_run)
    stages.assign(InProcess(), planned_run)
    for group in planned.groups:
        stages.build_group(InProcess(), planned_run, group)
    stages.gate(InProcess(), planned_run)
    publish.publish(planned_run)


def rows(folder: Path) -> list[Row]:
    return [row_of(path) for path in declaration_files(folder)]


def only(found):
    (row,) = found
    return row.cells


class TestRows:
    def test_an_index_that_was_never_built_is_shown(self, folder):
        cells = only(rows(folder))
        assert cells["index"] == "words"
        assert cells["table"] == "demo.glove.words"
        assert cells["state"] == "not built yet"
        assert cells["DAG"] == "ann_build_words"

    def test_a_published_index_is_shown_with_its_figures(self, folder):
        build(folder / "words.yaml")
        cells = only(rows(folder))
        assert cells["state"] == "up to date"
        assert cells["vectors"] == "40"
        assert cells["coverage"] == "100.00%"
        assert cells["recall"] == "1.0000"
        assert cells["published"]

    def test_rows_added_since_are_counted(self, folder):
        from puffin_ann.lake.catalog.tables import load_table

        build(folder / "words.yaml")
        load_table("demo.glove.words").append(_rows(10))
        cells = only(rows(folder))
        assert cells["state"] == "10 rows added, 0 deleted since"
        assert cells["coverage"] == "80.00%"

    def test_a_declaration_changed_since_is_told(self, folder):
        build(folder / "words.yaml")
        (folder / "words.yaml").write_text(DECLARATION.replace("l2", "cosine"))
        assert only(rows(folder))["state"] == "declaration changed since it was built"

    def test_what_is_wrong_with_one_index_hides_no_other(self, folder):
        (folder / "absent.yaml").write_text(DECLARATION.replace("glove.words", "glove.none"))
        (folder / "broken.yaml").write_text("shards: 0\n")
        absent, broken, words = rows(folder)
        assert "glove.none" in absent.cells["state"]
        assert broken.cells["state"].startswith("declaration not valid: ")
        assert words.cells["state"] == "not built yet"

    def test_a_file_that_declares_nothing_is_shown_with_the_dag_that_stands_for_it(self, folder):
        (folder / "words.yaml").rename(folder / "my words (copy).yaml")
        row = rows(folder)[0]
        assert row.cells["state"].startswith("declaration not valid: ")
        assert row.dag_id == row.cells["DAG"] == "ann_build_my_words__copy_"

    def test_an_unforeseen_error_is_logged_and_not_shown(self, folder, monkeypatch, caplog):
        def fail(name: str) -> None:
            raise RuntimeError("postgresql://user:secret@catalog")

        monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_table", fail)
        state = only(rows(folder))["state"]
        assert "secret" not in state
        assert "log of the API server" in state
        assert "words" in caplog.text

    def test_what_a_catalog_says_of_itself_is_logged_without_secrets_and_not_shown(
        self, folder, monkeypatch, caplog
    ):
        monkeypatch.setattr(
            "puffin_ann.lake.catalog.tables.load_catalog", pyiceberg.catalog.load_catalog
        )
        monkeypatch.setenv("PYICEBERG_CATALOG__LEAK__URI", "mysql+odd://svc:S3cretPw@db.internal/i")
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        (folder / "words.yaml").write_text(DECLARATION.replace("demo.", "leak."))
        state = only(rows(folder))["state"]
        assert state == "cannot be found now; see the log of the API server"
        assert "db.internal" in caplog.text
        assert "S3cretPw" not in caplog.text

    def test_a_table_that_is_missing_is_told_without_its_neighbours(self, folder):
        (folder / "words.yaml").write_text(DECLARATION.replace("glove.words", "glove.none"))
        state = only(rows(folder))["state"]
        assert "glove.none" in state
        assert "words" not in state


class Tags(HTMLParser):
    """Counts the tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        assert not any(name.startswith("on") or name in {"src", "href"} for name, _ in attrs)


def test_every_cell_is_escaped():
    cells = dict.fromkeys(COLUMNS, EVIL)
    text = page_of([Row("ann_build_evil", cells)])
    tags = Tags(text).found
    assert "script" not in tags
    assert tags.count("td") == len(COLUMNS)
    assert text.count("&lt;script&gt;") == len(COLUMNS)


def test_a_page_without_indexes_says_so():
    assert "No index that you may see is declared" in page_of([])


class TestApplication:
    @pytest.fixture
    def client(self, application, folder, monkeypatch) -> TestClient:
        """A user who may read the DAG of `words` and no other."""
        manager = SimpleNamespace(get_authorized_dag_ids=lambda **_: {"ann_build_words"})
        monkeypatch.setattr(application_module, "get_auth_manager", lambda: manager)
        application.dependency_overrides[get_user] = lambda: SimpleNamespace(name="reader")
        return TestClient(serve)

    def test_nobody_sees_it_without_a_login(self, application, folder, monkeypatch):
        monkeypatch.setattr(
            application_module, "get_auth_manager", lambda: pytest.fail("was asked")
        )
        answer = TestClient(serve).get("/")
        assert answer.status_code == 401
        assert "words" not in answer.text

    def test_a_user_sees_the_indexes_whose_dags_they_may_read(self, client, folder):
        (folder / "hidden.yaml").write_text(DECLARATION)
        answer = client.get("/")
        assert answer.status_code == 200
        assert "ann_build_words" in answer.text
        assert "hidden" not in answer.text

    def test_a_browser_is_told_to_load_and_run_nothing(self, client):
        headers = client.get("/").headers
        assert headers["content-type"].startswith("text/html")
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "script-src" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"

    @pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/other"])
    def test_it_has_no_other_page(self, client, path):
        assert client.get(path).status_code == 404

    def test_without_a_folder_of_declarations_it_says_what_to_set(self, client, monkeypatch):
        monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", "/nowhere/indexes")
        settings.cache_clear()
        answer = client.get("/")
        assert answer.status_code == 200
        assert "there is no folder of declarations at /nowhere/indexes" in answer.text


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
