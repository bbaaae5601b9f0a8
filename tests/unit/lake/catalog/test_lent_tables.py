"""A table that is held for longer than the credentials last that a REST catalog gave with it."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.config import Config

from puffin_ann.lake.catalog.tables import load_table, reload_table
from puffin_ann.lake.store import credentials
from puffin_ann.lake.store.staging import Staging

HOUR_MS = 3_600_000


class Lender:
    """A REST catalog of one table, whose credentials last for an hour."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.lent = 0
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        metadata = new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://bucket/words"
        )
        self.metadata = json.loads(metadata.model_dump_json())

    def answer(self, path: str) -> dict[str, object]:
        if "/config" in path:
            return {"defaults": {}, "overrides": {}}
        self.lent += 1
        return {
            "metadata-location": "s3://bucket/words/metadata/v1.metadata.json",
            "metadata": self.metadata,
            "config": {
                "s3.access-key-id": "a",
                "s3.secret-access-key": f"secret-of-{self.lent}",
                "s3.session-token": f"token-{self.lent}",
                "s3.session-token-expires-at-ms": str(self.ms + HOUR_MS),
            },
        }


@pytest.fixture
def lender(monkeypatch, tmp_path):
    made = Lender()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(made.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    def connect(io: PyArrowFileIO, *_: object) -> object:
        """A store that takes the newest credentials alone."""
        if io.properties["s3.session-token"] != f"token-{made.lent}":
            raise OSError("AWS Error ACCESS_DENIED during PutObject operation")
        return SubTreeFileSystem(str(tmp_path), LocalFileSystem())

    monkeypatch.setattr(PyArrowFileIO, "_initialize_fs", connect)
    monkeypatch.setattr(credentials, "now_ms", lambda: made.ms)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_address[1]
        monkeypatch.setenv("PYICEBERG_CATALOG__LENDER__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LENDER__URI", f"http://127.0.0.1:{port}")
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield made
        server.shutdown()


@pytest.mark.parametrize("again", [False, True], ids=["loaded", "loaded again"])
def test_a_stage_of_many_hours_can_write_at_its_end_what_it_made(lender, tmp_path, again):
    (tmp_path / "bucket" / "words" / "run").mkdir(parents=True)
    table = load_table("lender.glove.words")
    if again:
        table = reload_table(table)
    began = lender.lent
    staging = Staging(table.io, "s3://bucket/words/run")
    staging.put("early.json", b"{}")
    assert lender.lent == began
    for hours in range(1, 4):
        lender.ms += HOUR_MS
        staging.put(f"late-{hours}.json", b"{}")
        assert staging.read("early.json") == b"{}"
        assert lender.lent == began + hours
    assert table.io.properties["s3.secret-access-key"] == f"secret-of-{lender.lent}"
