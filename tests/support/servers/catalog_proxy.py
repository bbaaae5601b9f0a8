"""A proxy before a REST catalog that loses requests, loses replies, and delivers late."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Exchange:
    """A request, and how to have it answered by the catalog."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    upstream: tuple[str, int]

    @property
    def is_commit(self) -> bool:
        """Whether it changes a table."""
        return self.method == "POST" and "/tables/" in self.path and "/metrics" not in self.path

    def send(self) -> tuple[int, dict[str, str], bytes]:
        """Deliver it, now or whenever; returns the catalog's status, headers and body."""
        connection = HTTPConnection(*self.upstream, timeout=60)
        try:
            connection.request(self.method, self.path, self.body, self.headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()


Answer = tuple[int, dict[str, str], bytes] | None
Fault = Callable[[Exchange], Answer]
"""What becomes of a commit: the answer to give, or None to cut the connection without one."""


def lose_reply(exchange: Exchange) -> Answer:
    exchange.send()
    return None


def lose_request(exchange: Exchange) -> Answer:
    return None


def time_out_after(exchange: Exchange) -> Answer:
    """A gateway that gives up on a catalog which commits all the same."""
    exchange.send()
    return 504, {"Content-Type": "application/json"}, b"{}"


class CatalogProxy:
    """Passes everything on, but for the next commits, which meet the `faults` in turn."""

    def __init__(self, upstream: str) -> None:
        place = urlsplit(upstream)
        self.upstream = (str(place.hostname), int(place.port or 80))
        self.faults: list[Fault] = []
        self.held: list[Exchange] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def hold(self, exchange: Exchange) -> Answer:
        """A fault: the client gets no answer, the request is kept and may be sent later."""
        self.held.append(exchange)
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, exchange: Exchange) -> Answer:
        with self._lock:
            fault = self.faults.pop(0) if exchange.is_commit and self.faults else None
        return fault(exchange) if fault else exchange.send()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def exchange(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
                asked = Exchange(
                    self.command, self.path, self.rfile.read(length), headers, proxy.upstream
                )
                answer = proxy.answer(asked)
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, body = answer
                self.send_response(status)
                for key, value in headers.items():
                    if key.lower() not in HOP_BY_HOP | {"date", "server"}:
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = exchange

            def log_message(self, *_: object) -> None:
                pass

        return Handler
