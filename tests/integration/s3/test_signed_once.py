"""Addresses that are signed once: who must not see them, and when none is tried again."""

import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import StoreDeniedError
from puffin_ann.lake.store import signed_once
from puffin_ann.lake.store.ranges import Range, read_ranges
from puffin_ann.lake.store.s3 import S3, ranges_of
from tests.support.servers.object_store import ACCESS_KEY, BUCKET, properties

TOKEN = "FwoGZXIvYXdzEBYaDH/3Ul+tok=="
BROKEN_HEADERS = "206 Partial\r\nno header"
WHOLE_BYTES = 64 << 20


@pytest.fixture(autouse=True)
def _none_refused(monkeypatch):
    monkeypatch.setattr(signed_once, "_refused_until", {})


def store_of(endpoint: str, **more: str) -> S3:
    store = ranges_of(PyArrowFileIO({**properties(endpoint), **more}), f"s3://{BUCKET}/some")
    assert store is not None
    return store


def refuse() -> bytes:
    raise FileNotFoundError("as ever")


@pytest.mark.parametrize("fault", [BROKEN_HEADERS, "403 Forbidden", "reset"])
def test_no_log_has_what_an_address_is_signed_by(fault, proxy, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    store = store_of(proxy.endpoint, **{"s3.session-token": TOKEN})
    signed = store.botocore_client.generate_presigned_url
    addresses = []

    def noted(*arguments, **named):
        addresses.append(signed(*arguments, **named))
        return addresses[-1]

    monkeypatch.setattr(store.botocore_client, "generate_presigned_url", noted)
    proxy.fail(fault, "X-Amz-Signature")
    read = signed_once.reader(store, f"s3://{BUCKET}/some")
    assert read is not None
    assert read(0, 10, lambda: b"as ever") == b"as ever"
    told = caplog.text
    assert (fault == BROKEN_HEADERS) == ("Failed to parse headers (url=" in told)
    assert "CanonicalRequest" in told
    asked = dict(part.split("=") for part in addresses[0].partition("?")[2].split("&"))
    for name in ("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token"):
        assert asked[name] not in told, name
    assert TOKEN not in told
    assert f"{ACCESS_KEY}/" not in told


def test_the_error_of_asking_as_ever_leads_to_no_address(proxy):
    proxy.fail("reset", "X-Amz-Signature")
    read = signed_once.reader(store_of(proxy.endpoint), f"s3://{BUCKET}/some")
    with pytest.raises(FileNotFoundError) as told:
        read(0, 10, refuse)
    assert told.value.__context__ is None


def test_a_key_that_must_not_be_read_puts_no_bucket_aside(io, s3, proxy):
    for key in ("allowed", "barred"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=bytes(200_000))
    some = {
        key: [Range(f"s3://{BUCKET}/{key}", at, at + 10) for at in (0, 100_000)]
        for key in ("allowed", "barred")
    }
    proxy.fail("403 Forbidden", "barred")
    with pytest.raises(StoreDeniedError):
        read_ranges(io, some["barred"])
    proxy.reset()
    read_ranges(io, some["allowed"])
    assert all("X-Amz-Signature" in asked for asked in proxy.requests)


def test_an_empty_range_is_not_asked_for(proxy):
    read = signed_once.reader(store_of(proxy.endpoint), f"s3://{BUCKET}/some")
    assert read(5, 5, lambda: b"") == b""
    assert proxy.requests == []


def test_of_a_store_that_sends_whole_objects_none_is_read_and_none_asked_for_again():
    sent = 0
    is_done = threading.Event()

    class Whole(BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal sent
            self.send_response(200)
            self.send_header("Content-Length", str(WHOLE_BYTES))
            self.end_headers()
            try:
                for _ in range(WHOLE_BYTES >> 20):
                    self.wfile.write(bytes(1 << 20))
                    sent += 1 << 20
            except OSError:  # nobody reads on
                self.close_connection = True
            is_done.set()

        def log_message(self, *_told):
            pass

    server = HTTPServer(("127.0.0.1", 0), Whole)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        store = store_of(f"http://127.0.0.1:{server.server_port}")
        read = signed_once.reader(store, f"s3://{BUCKET}/some")
        assert read(0, 10, lambda: b"as ever") == b"as ever"
        assert signed_once.reader(store, f"s3://{BUCKET}/others") is None
        assert is_done.wait(60)
    finally:
        server.shutdown()
        server.server_close()
    assert sent < WHOLE_BYTES // 2  # what the sockets hold
