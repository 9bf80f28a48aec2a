"""The HTTP server: takes requests, asks the script, and sends what it says or breaks down."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias

from providers import chat, messages, responses
from providers.asked import Asked, BadRequest
from providers.pieces import encoded
from providers.replies import Cut, Fault, Html, Overloaded, Raw, Reply, Say, Slow

Script: TypeAlias = Callable[[Asked, int], Reply]
"""Given a request and how often it has come (see `Asked.attempt`), says what to answer."""

APIS: dict[str, Any] = {api.PATH: api for api in (messages, responses, chat)}
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


class FakeProvider:
    """A provider on a free loopback port, while the block runs.

    Attributes:
        url: Where it is, for the SDK of Anthropic.
        openai_url: For the SDK of OpenAI.
        requests: All that came and could be read, in order.
        errors: Of the script, or of this server; the first is raised when the block ends.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Asked] = []
        self._attempts: dict[str, int] = {}
        self.errors: list[Exception] = []
        self._lock = threading.Lock()
        self.over = threading.Event()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.openai_url = f"{self.url}/v1"
        self.environ = {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key",
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": "test-key",
        }

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close()
        if self.errors and kind is None:
            raise self.errors[0]

    def answer(self, asked: Asked, body: bytes) -> Reply:
        """Notes a request, and asks the script."""
        asked.arrived = time.monotonic()
        key = f"{asked.api} {body!r}"
        with self._lock:
            asked.attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
            self.requests.append(asked)
        try:
            reply = asked.reply = self.script(asked, asked.attempt)
        except BadRequest:
            raise
        except Exception as e:  # of the test's own script: shown when the block ends
            self.errors.append(e)
            return Fault(500, message=f"the script failed: {e}")
        if isinstance(reply, Say | Slow | Raw):
            with self._lock:
                self._attempts[key] = 0
        return reply


class _Server(ThreadingHTTPServer):
    """Closes the connections that clients keep open, when it ends."""

    def __init__(self, provider: FakeProvider) -> None:
        self.provider = provider
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close(self) -> None:
        for connection in list(self._open):
            self.shutdown_request(connection)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keeps what is a bug; a client may go away, and a connection be closed on purpose."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.provider.errors.append(error)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.api = APIS.get(self.path.partition("?")[0])
        if self.api is None:
            return self._send_json(404, {"error": {"message": f"no such path: {self.path}"}})
        self.name = f"{len(self.server.provider.requests):06}"
        if not (self.headers.get("x-api-key") or self.headers.get("authorization")):
            return self._send_fault(Fault(401, message="no API key was given"))
        try:
            self.asked = self.api.read(json.loads(body))
            self.asked.headers = {name.lower(): value for name, value in self.headers.items()}
            reply = self.server.provider.answer(self.asked, body)
        except BadRequest as e:
            return self._send_fault(Fault(400, message=str(e)))
        return self._send(reply)

    def _send(self, reply: Reply) -> None:
        match reply:
            case Say() if self.asked.stream:
                self._send_stream(self._events(reply))
            case Say():
                self._send_json(200, self.api.whole(self.asked, reply, self.name))
            case Fault():
                self._send_fault(reply)
            case Slow(seconds, say):
                self.server.provider.over.wait(seconds)
                self._send(say)
            case Html(status):
                self._send_whole(status, "text/html", PAGE)
            case Overloaded(say) if self.asked.stream:
                events = self._events(say)[: len(self._events(say)) // 2]
                last = self.api.broken(self.name, len(events))
                self._send_stream([*events, encoded(last)])
            case Overloaded():
                self._send_fault(self.api.OVERLOADED)
            case Cut():
                self._send_cut(reply)
            case Raw(body) if self.asked.stream:
                self._send_stream([encoded(("", data)) for data in body])
            case Raw(body):
                self._send_json(200, body)

    def _events(self, say: Say) -> list[bytes]:
        return [encoded(event) for event in self.api.stream(self.asked, say, self.name)]

    def _send_fault(self, fault: Fault) -> None:
        self._send_json(fault.status, self.api.error(fault, self.name), fault.headers)

    def _send_json(self, status: int, value: Any, headers: Any = {}) -> None:  # noqa: B006
        self._send_whole(status, "application/json", json.dumps(value).encode(), headers)

    def _send_whole(self, status: int, kind: str, body: bytes, headers: Any = {}) -> None:  # noqa: B006
        length = {"Content-Type": kind, "Content-Length": str(len(body))}
        self._begin(status, {**length, **headers})
        self.wfile.write(body)

    def _send_stream(self, events: list[bytes]) -> None:
        self._begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for event in events:
            self._send_chunk(event)
        self._send_chunk(b"")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send_cut(self, cut: Cut) -> None:
        if self.asked.stream:
            events = self._events(cut.say)
            arrived = b"".join(events[: _middle(events)])[: cut.after_bytes]
            self._begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            if arrived:  # an empty chunk would be the last one
                self._send_chunk(arrived)
            if cut.ends_well:
                return self._send_chunk(b"")
        else:
            body = json.dumps(self.api.whole(self.asked, cut.say, self.name)).encode()
            half = body[: len(body) // 2][: cut.after_bytes]
            if cut.ends_well:
                return self._send_whole(200, "application/json", half)
            length = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            self._begin(200, length)
            self.wfile.write(half)
        self.close_connection = True
        return None

    def _begin(self, status: int, headers: Any) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests look at `FakeProvider.requests`."""


def _middle(events: list[bytes]) -> int:
    """How many events there are up to the first piece of the last call's arguments."""
    marks = (b'"input_json_delta", "partial_json": "{', b"arguments.delta", b'{"arguments":')
    found = [n for n, event in enumerate(events) if any(mark in event for mark in marks)]
    if not found:
        return len(events) // 2
    last = max(n for n in found if n - 1 not in found)  # where a run of them begins
    return last + 1
