"""A stand-in for Apache Livy: takes batches over HTTP, plays their states, keeps what it got."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Livy:
    """What the service is to answer, and what it was asked.

    Attributes:
        states: of the next batch, one for each time it is asked for; the last one stays.
        log: lines of the batch.
        refusal: answer to a batch that is not taken; None to take it.
        batches: bodies of the batches that were taken, by id.
        deleted: ids of batches that were cancelled.
        port: on loopback.
    """

    states: list[str] = field(default_factory=lambda: ["starting", "running", "success"])
    log: list[str] = field(default_factory=list)
    refusal: str | None = None
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)
    port: int = 0

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the body of an answer, as Livy's documentation has them."""
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and parts == ["batches"]:
            if self.refusal is not None:
                return 400, {"msg": self.refusal}
            number = len(self.batches) + 1
            self.batches[number] = body
            return 201, {"id": number, "state": "starting"}
        number = int(parts[1])
        if number not in self.batches:
            return 404, {"msg": f"Session '{number}' not found."}
        if method == "DELETE":
            self.deleted.append(number)
            return 200, {"msg": "deleted"}
        if parts[2:] == ["state"]:
            return 200, {"id": number, "state": self._state(number)}
        if parts[2:] == ["log"]:
            return 200, {"id": number, "from": 0, "total": len(self.log), "log": self.log}
        return 200, {"id": number, "appId": f"application_{number}", "state": self._state(number)}

    def _state(self, number: int) -> str:
        if number in self.deleted:
            return "killed"
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@contextmanager
def livy_server() -> Iterator[Livy]:
    """Serve on loopback until the test is over."""
    livy = Livy()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            body = json.loads(sent) if sent and self.command == "POST" else {}
            status, answer = livy.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        livy.port = server.server_address[1]
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield livy
        finally:
            server.shutdown()
