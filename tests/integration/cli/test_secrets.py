"""Secrets planted wherever a user may put them are found in nothing that we write or tell."""

import json
import logging
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from tenacity import wait_none

from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.cli.app import app
from puffin_ann.cli.main import run as run_command
from puffin_ann.declaration import load_declaration
from puffin_ann.errors import CatalogUnavailableError, PuffinAnnError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.catalog.timeouts import ask_until_answered
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.refresh import plan_refresh
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

SECRET = "Pl4ntedS3cret"
"""A part of every secret planted here, so that none is overlooked."""

CONF = {
    "spark.hadoop.fs.s3a.secret.key": f"{SECRET}-conf",
    "spark.sql.catalog.test.token": f"{SECRET}-conf-token",
    "spark.executor.extraJavaOptions": f"-Ddb.password={SECRET}-java",
}
SPARK = {
    "conf": CONF,
    "env": {"DB_PASSWORD": f"{SECRET}-env", "NOTE": f"https://u:{SECRET}-note@host"},
    "files": [f"https://u:{SECRET}-file@host/a"],
    "archives": [f"https://host/b?token={SECRET}-archive"],
}
CATALOG = {
    "credential": f"client:{SECRET}-credential",
    "token": f"{SECRET}-token",
    "header.Authorization": f"Bearer {SECRET}-bearer",
    "s3.access-key-id": "told-to-nobody-either",
    "s3.secret-access-key": f"{SECRET}-s3",
    "s3.session-token": f"{SECRET}-session",
    "adls.sas-token.account": f"sv=1&sig={SECRET}-sas",
}
LEAKING = {
    "inferred": f"mysql+odd://svc:{SECRET}-inferred@db.internal/iceberg",
    "sql": f"postgresql+psycopg2://svc:{SECRET}/sl%40sh@127.0.0.1:1/iceberg",
    "rest": f"http://svc:{SECRET}-rest@127.0.0.1:1/v1?token={SECRET}-query&sig={SECRET}-sig",
}
"""Catalogs of which PyIceberg, SQLAlchemy and an HTTP client quote the address, by name."""

BROKEN = {
    "nested": f"spark: {{conf: {{db.password: [{SECRET}-nested]}}}}\n",
    "quoted": f'spark:\n  conf:\n    fs.secret.key: "{SECRET}-quoted\n',
    "misplaced": f"table: a.b.c\ncolumn: v\npassword: {SECRET}-misplaced\n",
    "listed": f"spark: [fs.secret.key={SECRET}-listed]\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch, catalog) -> Path:
    """Declarations and catalogs with secrets in them, by environment and by file."""
    for name, value in CATALOG.items():
        key = name.replace(".", "__").replace("-", "_").upper()
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{key}", value)
    catalogs = {name: {"uri": uri, **CATALOG} for name, uri in LEAKING.items()}
    (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": catalogs}))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__SQL__TYPE", "sql")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    folder = tmp_path / "indexes"
    folder.mkdir()
    declared = builds.declaration().model_dump(mode="json", exclude_defaults=True)
    spark = {"spark": SPARK}
    (folder / f"{builds.INDEX}.yaml").write_text(yaml.safe_dump({**declared, **spark}))
    for name in LEAKING:
        elsewhere = {**declared, **spark, "name": name, "table": f"{name}.demo.words"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(elsewhere))
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    monkeypatch.setenv("PUFFIN_ANN_CATALOG_SECONDS", "5")
    monkeypatch.setattr(ask_until_answered.retry, "wait", wait_none())
    settings.cache_clear()
    return folder


@pytest.fixture
def table(folder, catalog):
    made = load_catalog("test").create_table(
        "demo.words", schema=builds.rows([]).schema, properties={"db.password": f"{SECRET}-table"}
    )
    made.append(builds.rows(range(60)))
    return made


@pytest.fixture
def cli(monkeypatch, capsys, caplog):
    """Run a command in this process; returns its exit code and all that it says, logs included."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["puffin-ann", "--verbose", *arguments])
        with pytest.raises(SystemExit) as left:
            run_command()
        logging.getLogger("puffin_ann").setLevel(logging.DEBUG)
        said = capsys.readouterr()
        return left.value.code or 0, said.out + said.err + caplog.text

    with caplog.at_level(logging.DEBUG, "puffin_ann"):
        yield call


def everything_of(path: Path) -> str:
    """Return a file's text, of one of ours what is packed in it, too."""
    text = path.read_bytes().decode("latin-1")
    if path.suffix != ".puffin":
        return text
    with path.open("rb") as stream:
        reader = PuffinReader(stream)
        for blob in reader.find(routing_blob.TYPE):
            text += json.dumps(dict(routing_blob.decode(reader.read(blob)).properties))
    return text


def ours(table) -> list[Path]:
    """All files in the table's store but its data, and metadata that holds its own properties."""
    root = Path(table.location().removeprefix("file://"))
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".parquet" and not path.name.endswith("metadata.json")
    ]


def test_nothing_that_a_build_and_a_refresh_store_or_hand_on_holds_a_secret(table, folder, caplog):
    declared = load_declaration(folder / f"{builds.INDEX}.yaml")
    assert declared.spark.conf == CONF
    assert set(declared.spark.env) == set(SPARK["env"])
    with caplog.at_level(logging.DEBUG, "puffin_ann"):
        built = build.plan_build(declared, run_id="build")
        builds.run_stages(built)
        published = publish.publish(RunRef.planned(built))
        table.refresh().append(builds.rows(range(60, 90)))
        refreshed = plan_refresh(declared, run_id="refresh", force=True)
        done = refresh_in_process(declared, run_id="another", force=True, runner=InProcess())
    handed = json.dumps(
        [*(document.model_dump() for document in (built, published, refreshed)), done]
    )
    stored = {path.name: everything_of(path) for path in ours(table)}
    assert {"plan.json", "train.json", "gate.json"} <= stored.keys()
    assert sum(name.endswith(".puffin") for name in stored) >= 2
    assert "recall_target" in "".join(text for name, text in stored.items() if "puffin" in name)
    assert [name for name, text in stored.items() if SECRET in text] == []
    assert SECRET not in handed + caplog.text
    assert "spark.hadoop.fs.s3a.secret.key" in caplog.text  # which is warned of by its name
    assert "spark.executor.extraJavaOptions" in caplog.text  # and this by its value


def rename(folder: Path, before: str, after: str) -> None:
    """Give a declaration another name."""
    declared = yaml.safe_load((folder / f"{before}.yaml").read_text())
    (folder / f"{after}.yaml").write_text(yaml.safe_dump({**declared, "name": after}))
    (folder / f"{before}.yaml").unlink()


ASK_NO_CATALOG = {"quickstart", "size", "compile"}
"""Commands that are told of no catalog and no declaration that anybody wrote."""


def test_no_command_tells_a_secret_whether_it_succeeds_or_fails(table, folder, cli, tmp_path):
    builds.build(load_declaration(folder / f"{builds.INDEX}.yaml"), "build")
    vectors = str(tmp_path / "vectors.npy")
    np.save(vectors, np.ones((12, builds.DIMENSION), np.float32))
    (path,) = (our for our in ours(table) if our.suffix == ".puffin")
    here, index = "test.demo.words", builds.INDEX
    told = {}
    for arguments in (
        ("list", "test"),
        ("list", "test", "--json"),
        ("check",),
        ("check", "--json"),
        ("init", here, "--name", "another", "--to", "-"),
        ("status", here),
        ("status", here, index, "--declaration"),
        ("status", here, "--json"),
        ("doctor", here),
        ("doctor", here, "--json"),
        ("plan", here, index),
        ("plan", here, index, "--json"),
        ("history", here, index, "--json"),
        ("inspect", str(path)),
        ("inspect", str(path), "--json"),
        ("search", here, index, "--key", "word=w5"),
        ("search", here, index, "--key", "word=w5", "--json"),
        ("warm", here, index),
        ("evaluate", index, "--vector", vectors),
        ("build", index),
        ("refresh", index),
        ("maintain", here),
        ("gather", index, "--json"),
        ("clean", here, "--json"),
        ("drop", here, index, "--force", "--dry-run", "--json"),
    ):
        code, told[arguments] = cli(*arguments)
        assert code == 0, told[arguments]
    for name in LEAKING:
        there = f"{name}.demo.words"
        for arguments in (
            ("list", name),
            ("init", there, "--to", "-"),
            ("status", there),
            ("doctor", there),
            ("plan", there, name),
            ("history", there, name),
            ("search", there, name, "--key", "word=w5"),
            ("warm", there, name),
            ("evaluate", name, "--vector", vectors),
            ("build", name),
            ("refresh", name),
            ("clean", there),
            ("drop", there, name, "--force", "--yes"),
            ("maintain", name),
            ("gather", name),
            ("rename", "former", name),
        ):
            code, told[arguments] = cli(*arguments)
            assert code == CatalogUnavailableError.exit_code, told[arguments]
            assert "Traceback" not in told[arguments]
    for name, text in BROKEN.items():
        (folder / "broken.yaml").write_text(text)
        for arguments in (
            ("status", here, name),
            ("refresh", str(folder / "broken.yaml")),
            ("check", str(folder / "broken.yaml")),
        ):
            code, told[*arguments, text] = cli(*arguments)
            assert code in (2, 3)
    (folder / "broken.yaml").unlink()
    rename(folder, index, "renamed")
    arguments = ("rename", index, "renamed", "--json")
    code, told[arguments] = cli(*arguments)
    assert code == 0, told[arguments]
    tried = {arguments[0] for arguments in told}
    assert {str(command.name) for command in app.registered_commands} - tried == ASK_NO_CATALOG
    assert [arguments for arguments, text in told.items() if SECRET in text] == []


@pytest.mark.parametrize("name", LEAKING)
def test_no_traceback_of_an_error_of_ours_tells_a_secret(folder, name):
    with pytest.raises(PuffinAnnError) as caught:
        load_table(f"{name}.demo.words")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_defect_is_told_in_full_but_for_secrets(table, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError(f"connection mysql://svc:{SECRET}@db refused")

    monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_table", fail)
    monkeypatch.setattr(sys, "argv", ["puffin-ann", "status", "test.demo.words"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(RuntimeError) as caught:
        run_command()
    sys.excepthook(caught.type, caught.value, caught.tb)  # as Python does at its end
    told = capsys.readouterr().err
    assert "RuntimeError: connection mysql://***@db refused" in told
    assert "Traceback" in told
    assert SECRET not in told
