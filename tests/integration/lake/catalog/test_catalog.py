import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyiceberg.catalog
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from puffin_ann.errors import (
    CatalogUnavailableError,
    SnapshotNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from puffin_ann.lake.catalog import tables as catalogs
from puffin_ann.lake.catalog import timeouts
from puffin_ann.lake.catalog.tables import load_table, name_of, reload_table, snapshot
from puffin_ann.settings import settings
from tests.support.lake import tables


@pytest.fixture
def configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, catalog: SqlCatalog
) -> Iterator[SqlCatalog]:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", catalog.properties["uri"])
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", catalog.properties["warehouse"])
    configure(monkeypatch)
    return catalog


def configure(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyIceberg reads its configuration once, at import.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())


def test_a_table_is_found_by_catalog_namespace_and_name(configured: SqlCatalog) -> None:
    tables.create(configured)
    table = load_table("lake.demo.words")
    assert table.name() == ("demo", "words")
    assert name_of(table) == "lake.demo.words"
    assert load_table(table) is table


def test_a_catalog_that_is_described_later_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, catalog: SqlCatalog
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    configure(monkeypatch)
    tables.create(catalog)
    with pytest.raises(CatalogUnavailableError, match="'lake' is not configured"):
        load_table("lake.demo.words")
    described = {name: catalog.properties[name] for name in ("uri", "warehouse")}
    (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"lake": described}}))
    assert load_table("lake.demo.words").name() == ("demo", "words")


def test_a_catalog_whose_file_is_away_is_no_empty_catalog(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    away = tmp_path / "away.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{away}")
    configure(monkeypatch)
    with pytest.raises(CatalogUnavailableError, match=r"away\.db, which is not there"):
        load_table("lake.demo.words")
    assert not away.exists()


def test_a_table_is_loaded_again_over_the_connection_that_it_has(configured: SqlCatalog) -> None:
    words = tables.create(configured)
    loaded = load_table("lake.demo.words")
    with words.transaction() as change:
        change.set_properties(colour="red")
    again = reload_table(loaded)
    assert (again.catalog, again.properties["colour"]) == (loaded.catalog, "red")
    assert "colour" not in loaded.properties
    configured.drop_table("demo.words")
    with pytest.raises(TableNotFoundError, match=r"'lake' has no table 'demo\.words'"):
        reload_table(loaded)


@pytest.mark.parametrize("name", ["words", "demo.words", "lake..words", ""])
def test_other_names_are_refused_with_the_form_they_should_have(name: str) -> None:
    with pytest.raises(TableNotFoundError, match=r"catalog\.namespace\.table"):
        load_table(name)


def test_a_missing_table_is_told_with_its_neighbours_only_to_whoever_asked(
    configured: SqlCatalog,
) -> None:
    tables.create(configured)
    with pytest.raises(TableNotFoundError, match=r"demo\.word'$") as caught:
        load_table("lake.demo.word")
    assert caught.value.aside == "namespace 'demo' has: words (did you mean 'words'?)"


def test_a_missing_namespace_is_told_too(configured: SqlCatalog) -> None:
    with pytest.raises(TableNotFoundError, match=r"demoo\.words") as caught:
        load_table("lake.demoo.words")
    assert caught.value.aside == "nor a namespace 'demoo'"


def test_a_catalog_that_is_not_configured_is_told_with_what_to_set(
    configured: SqlCatalog,
) -> None:
    with pytest.raises(CatalogUnavailableError, match="PYICEBERG_CATALOG__ELSEWHERE__URI"):
        load_table("elsewhere.demo.words")


def test_a_catalog_nobody_listens_for_is_told(
    monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__DOWN__URI", f"http://127.0.0.1:{unused_port}")
    configure(monkeypatch)
    with pytest.raises(CatalogUnavailableError, match="'down' does not answer"):
        load_table("down.demo.words")


def test_a_catalog_that_stays_silent_is_given_up_on(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SILENT__URI", f"http://127.0.0.1:{silent_port}")
    configure(monkeypatch)
    monkeypatch.setenv("PUFFIN_ANN_CATALOG_SECONDS", "0.5")
    settings.cache_clear()
    with pytest.raises(CatalogUnavailableError, match=r"within 0\.5 s.*PUFFIN_ANN_CATALOG_SECONDS"):
        load_table("silent.demo.words")
    settings.cache_clear()


@pytest.mark.parametrize("credential", ["", "id:secret"])
def test_who_asked_a_silent_catalog_leaves_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch, silent_port: int, credential: str
) -> None:
    """Its constructor asks for a token or a configuration, by a session without a timeout."""
    monkeypatch.setenv("PYICEBERG_CATALOG__MUTE__URI", f"http://127.0.0.1:{silent_port}")
    if credential:
        monkeypatch.setenv("PYICEBERG_CATALOG__MUTE__CREDENTIAL", credential)
    configure(monkeypatch)
    monkeypatch.setenv("PUFFIN_ANN_CATALOG_SECONDS", "0.2")
    settings.cache_clear()
    with pytest.raises(CatalogUnavailableError, match="gave no answer"):
        load_table("mute.demo.words")
    settings.cache_clear()
    (left,) = [thread for thread in threading.enumerate() if thread.name == "catalog-mute"]
    left.join(4)
    assert not left.is_alive()


def test_a_catalog_that_answers_nothing_is_not_asked_by_ever_more_threads() -> None:
    """Such as a database, whose driver has no timeout of its own."""
    over = threading.Event()
    for _ in range(timeouts.MOST_UNANSWERED):
        with pytest.raises(CatalogUnavailableError, match="gave no answer"):
            timeouts.within(0.01, "stuck", over.wait)
    asking = [thread for thread in threading.enumerate() if thread.name == "catalog-stuck"]
    with pytest.raises(CatalogUnavailableError, match="'stuck' has not answered 4 earlier"):
        timeouts.within(0.01, "stuck", lambda: pytest.fail("was asked"))
    assert timeouts.within(5, "other", lambda: "answer") == "answer"
    over.set()
    for thread in asking:
        thread.join(5)
    assert timeouts.within(5, "stuck", lambda: "answer") == "answer"


def test_requests_of_a_loaded_catalog_have_a_timeout(
    monkeypatch: pytest.MonkeyPatch, half_silent_port: int
) -> None:
    """A catalog that answers at first, and then no more."""
    monkeypatch.setattr(timeouts, "HTTP_TIMEOUT", (0.2, 0.2))
    monkeypatch.setenv("PYICEBERG_CATALOG__HALF__URI", f"http://127.0.0.1:{half_silent_port}")
    configure(monkeypatch)
    with pytest.raises(CatalogUnavailableError, match="timed out"):
        load_table("half.demo.words")


@pytest.fixture
def half_silent_port() -> Iterator[int]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "config" not in self.path:
                over.wait(10)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"defaults": {}, "overrides": {}}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        over.set()
        server.shutdown()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def test_a_short_outage_is_waited_out(
    configured: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create(configured)
    calls: list[str] = []
    real = catalogs._made

    def flaky(name: str) -> object:
        calls.append(name)
        if len(calls) < timeouts.ATTEMPTS:
            raise ConnectionError("connection refused")
        return real(name)

    monkeypatch.setattr(catalogs, "_made", flaky)
    assert name_of(load_table("lake.demo.words")) == "lake.demo.words"
    assert len(calls) == timeouts.ATTEMPTS


def test_metadata_that_pyiceberg_cannot_read_is_told_as_such(configured: SqlCatalog) -> None:
    table = tables.create(configured)
    table.append(tables.rows(0, 3))
    location = Path(table.metadata_location.removeprefix("file://"))
    text = location.read_text()
    at = table.current_snapshot().snapshot_id
    entry = (
        f'"statistics":[{{"snapshot-id":{at},"statistics-path":"x","file-size-in-bytes":1,'
        '"file-footer-size-in-bytes":1,"blob-metadata":[{"type":"of-somebody-else",'
        f'"snapshot-id":{at},"sequence-number":1,"fields":[1]}}]}}]'
    )
    assert '"statistics":[]' in text
    location.write_text(text.replace('"statistics":[]', entry))
    with pytest.raises(UnsupportedTableError, match=r"cannot read the metadata of lake\.demo"):
        load_table("lake.demo.words")


def test_snapshots_are_found_by_id(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    assert snapshot(table) is None
    table.append(tables.rows(0, 3))
    first = table.current_snapshot()
    table.append(tables.rows(3, 3))
    assert snapshot(table) == table.current_snapshot()
    assert snapshot(table, first.snapshot_id) == first
    with pytest.raises(SnapshotNotFoundError, match=rf"{first.snapshot_id}$"):
        snapshot(table, 5)
