"""Tables in an embedded catalog, and what is built and asked over them."""

import sys
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.cli.main import run
from puffin_ann.settings import settings
from tests.support.lifecycle import builds


@pytest.fixture(autouse=True)
def _full_disks_take_nothing_from_the_cache(monkeypatch):
    """Else shards make way for others on a machine whose disk is nearly full."""
    monkeypatch.setattr("puffin_ann.search.cache.local_cache.LEFT_FREE", 0.0)


@pytest.fixture
def catalog(tmp_path: Path, known_catalogs) -> SqlCatalog:
    """An embedded catalog that the library finds by name, as it finds a user's."""
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/warehouse",
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    return catalog


@pytest.fixture
def words(catalog):
    """60 rows in two data files of several row groups."""
    table = catalog.create_table(
        "demo.words",
        schema=builds.rows([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(builds.rows(range(30)))
    table.append(builds.rows(range(30, 60)))
    return table


@pytest.fixture
def build(words):
    """Build an index over the words by a declaration."""

    def make(declaration):
        builds.build(declaration, "build")
        return words.refresh()

    return make


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; returns exit code, output and errors."""

    def call(*arguments: str, width: int = 200) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["puffin-ann", *arguments])
        monkeypatch.setattr("puffin_ann.cli.output.console.width", width, raising=False)
        with pytest.raises(SystemExit) as left:
            run()
        said = capsys.readouterr()
        return left.value.code or 0, said.out, said.err

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch, catalog):
    """A folder of declarations that the library looks in."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    settings.cache_clear()
    return folder


@pytest.fixture
def declare(folder):
    """Write a declaration into the folder; None takes it away."""

    def write(name: str = builds.INDEX, **changes):
        declared = builds.declaration(name=name, **changes)
        data = declared.model_dump(mode="json")
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
        return declared

    return write


@pytest.fixture
def indexed(words, declare):
    builds.build(declare(), "run")
    return words.refresh()
