"""A real HTTP server on the loopback that answers as a function says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)

    def with_content(self, content: object) -> Request:
        """The same with another body."""
        return replace(self, body=json.dumps(content).encode())


@dataclass(frozen=True)
class Answer:
    """What a server says."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: object, status: int = 200) -> Answer:
        """JSON."""
        return cls(status, json.dumps(content).encode())

    @property
    def content(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)


@contextmanager
def serving(
    answer: Callable[[Request], Answer | None], *, port: int = 0, connected: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Serve on a port of the loopback, a free one by default; gives the address.

    Args:
        answer: called for each request, in a thread of its connection; none closes it without a word.
        connected: called for each new connection.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet; two would wait for each other

        def setup(self) -> None:
            super().setup()
            connected()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = answer(Request(self.command, self.path, dict(self.headers.items()), body))
            if said is None:
                self.close_connection = True
                return
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(said.status)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)
                self.wfile.flush()

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that the library looks for

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
