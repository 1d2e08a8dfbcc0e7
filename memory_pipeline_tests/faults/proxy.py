"""A real proxy in front of a real server that lets everything through, or fails as told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from memory_pipeline_tests.http_server import Answer, Request, serving

Forward = Callable[[Request], Answer]
Fault = Callable[[Request, Forward], Answer | None]
"""May forward, or not, and says what the client gets; none: the connection is closed without a word."""

_PASSED_ON = ("api-key", "content-type")


def _through(request: Request, forward: Forward) -> Answer | None:
    return forward(request)


@dataclass
class Proxy:
    """`fault` decides on each request."""

    target: str
    fault: Fault = _through
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the test ends: what hangs until then goes on."""

    def forward(self, request: Request) -> Answer:
        """Ask the real server."""
        parts = urlsplit(self.target)
        headers = {name: value for name, value in request.headers.items() if name.lower() in _PASSED_ON}
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        try:
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), {"Content-Type": "application/json"})
        finally:
            connection.close()


@contextmanager
def in_front_of(target: str) -> Iterator[Proxy]:
    """Serve on a free port of the loopback."""
    proxy = Proxy(target)
    with serving(lambda request: proxy.fault(request, proxy.forward)) as proxy.url:
        try:
            yield proxy
        finally:
            proxy.over.set()
