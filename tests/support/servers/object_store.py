"""A real S3 server on loopback, and a proxy before it that counts what passes and can cut off."""

import ctypes
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ACCESS_KEY, SECRET_KEY = "testkey", "testsecret"
BUCKET = "bucket"

IDENTITIES = f"""{{"identities": [{{
  "name": "admin",
  "credentials": [{{"accessKey": "{ACCESS_KEY}", "secretKey": "{SECRET_KEY}"}}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]
}}]}}"""


def client(endpoint: str):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}),
    )


def properties(endpoint: str) -> dict[str, str]:
    """FileIO properties for the store."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": "us-east-1",
    }


@contextmanager
def seaweedfs(folder: Path, volumes: int = 20) -> Iterator[str]:
    """Run SeaweedFS with master, volume, filer and S3 in one process; gives its S3 endpoint.

    Args:
        folder: holds what is stored.
        volumes: of 256 MB each, that it holds at most.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(IDENTITIES)
    services = ("master", "volume", "filer", "s3")
    free = free_ports(2 * len(services))  # all at once, or one might be found twice
    ports = dict(zip(services, free[: len(services)], strict=True))
    grpc = dict(zip(services, free[len(services) :], strict=True))
    command = [
        shutil.which("weed") or str(Path(sys.executable).with_name("weed")),
        "-logtostderr=true",
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=256",
        f"-volume.max={volumes}",
        "-volume.minFreeSpace=256MiB",  # a hundredth of a large disk, by default
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *(f"-{name}.port.grpc={port}" for name, port in grpc.items()),
    ]
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    log = (folder / "weed.log").open("wb")
    process = subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=log, preexec_fn=_die_with_the_test_run
    )
    try:
        wait_until_it_answers(endpoint, process, folder / "weed.log")
        yield endpoint
    finally:
        process.kill()  # it would take its time to save what nobody needs any more
        process.wait()
        log.close()


def _die_with_the_test_run() -> None:
    """Have the kernel end this process with its parent, even one that was killed (Linux)."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def wait_until_it_answers(endpoint: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 60
    store = client(endpoint)
    while time.monotonic() < deadline and process.poll() is None:
        try:
            names = [bucket["Name"] for bucket in store.list_buckets()["Buckets"]]
            if BUCKET not in names:
                store.create_bucket(Bucket=BUCKET)
            store.put_object(Bucket=BUCKET, Key="ready", Body=b"x")
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text()[-3000:]}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [socket.getsockname()[1] for socket in sockets]
    for connection in sockets:
        connection.close()
    return ports


REFUSAL = b"HTTP/1.1 %s Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Forwards connections, counts the bytes of both directions and notes each request.

    Attributes:
        bytes: that passed, in both directions.
        requests: first line of each.
        spans: of each request, when it came and when the last bytes of its answer passed.
        delay: seconds that each request is held back.
        held_until: the first are held back until so many came, for a minute at most.
    """

    REQUEST = re.compile(rb"(?:GET|HEAD|PUT|POST|DELETE) /\S* HTTP/1.1\r\n")

    def __init__(self, upstream: str) -> None:
        host, port = upstream.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._cut: set[socket.socket] = set()
        self._parts_left: int | None = None
        self._failing: re.Pattern[str] | None = None
        self._fault = ""
        self.bytes = 0
        self.requests: list[str] = []
        self.spans: list[list[float]] = []
        self.delay = 0.0
        self.held_until = 0
        self._open_spans: dict[socket.socket, list[float]] = {}
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Count anew, and let everything pass."""
        with self._lock:
            self.bytes, self.requests, self.spans, self._parts_left = 0, [], [], None
            self._failing = None

    def rounds(self) -> int:
        """The most requests of which each came after the answer to another one."""
        with self._lock:
            spans = sorted(map(tuple, self.spans), key=lambda span: span[1])
        chains: list[int] = []
        for came, _ in spans:
            before = (chain for chain, span in zip(chains, spans, strict=False) if span[1] <= came)
            chains.append(1 + max(before, default=0))
        return max(chains, default=0)

    def cut_off_after(self, parts: int) -> None:
        """Let so many requests for parts pass, then nothing at all."""
        self._parts_left = parts

    def fail(self, fault: str, requests: str) -> None:
        """Answer requests whose first line has a pattern in it by a fault.

        That is an HTTP status, `reset` for a connection that is closed, or `cut` for an answer
        whose body ends in the middle.
        """
        with self._lock:
            self._fault, self._failing = fault, re.compile(requests)

    def parts(self) -> list[str]:
        """The requests seen that upload or copy a part."""
        return [
            request
            for request in self.requests
            if request.startswith("PUT") and "partNumber=" in request
        ]

    def close(self) -> None:
        self._server.close()
        for connection in self._sockets:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                down, _ = self._server.accept()
            except OSError:
                return
            if self._parts_left is not None and self._parts_left < 0:
                down.close()
                continue
            up = socket.create_connection(self._upstream)
            for stream in (down, up):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [down, up]
            threading.Thread(target=self._pump, args=(down, up, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(up, down, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, requests: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                self._note(source if requests else sink, data, requests)
                if not self._passes(data, requests):
                    break
                fault = self._fault_of(data) if requests else None
                if fault == "cut":
                    with self._lock:
                        self._cut.add(sink)
                elif fault is not None:
                    if fault != "reset":
                        source.sendall(REFUSAL % fault.encode())
                    break
                if source in self._cut and not requests:
                    head, _, body = data.partition(b"\r\n\r\n")
                    sink.sendall(head + b"\r\n\r\n" + body[: len(body) // 2])
                    break
                sink.sendall(data)
        except OSError:
            pass
        for stream in (source, sink):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def _note(self, client: socket.socket, data: bytes, is_request: bool) -> None:
        """Note when a request came, or a part of its answer; hold a request back."""
        with self._lock:
            now = time.monotonic()
            if not is_request:
                if client in self._open_spans:
                    self._open_spans[client][1] = now
                return
            if not self.REQUEST.match(data):
                return
            self._open_spans[client] = [now, now]
            self.spans.append(self._open_spans[client])
        time.sleep(self.delay)
        given_up = time.monotonic() + 60.0
        while len(self.spans) < self.held_until and time.monotonic() < given_up:
            time.sleep(0.01)
        self.held_until = 0

    def _fault_of(self, data: bytes) -> str | None:
        failing = self._failing
        lines = (line.decode() for line in self.REQUEST.findall(data))
        return self._fault if failing and any(map(failing.search, lines)) else None

    def _passes(self, data: bytes, requests: bool) -> bool:
        with self._lock:
            self.bytes += len(data)
            seen = [line.decode() for line in self.REQUEST.findall(data)] if requests else []
            self.requests += seen
            if self._parts_left is None:
                return True
            self._parts_left -= sum("partNumber=" in line for line in seen)
            return self._parts_left >= 0
