"""One connection to a Qdrant server, and its failures by name.

What the client does and this module undoes: for servers of this machine it opens a new connection for every request; it
asks for the server's version from a thread of its own; it warns of a key on plain HTTP; an answer that is not JSON, or
lacks a result, comes out as whatever Python raises on it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from qdrant_client import QdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from memory_pipeline.core.errors import (
    CollectionMissing,
    ConfigurationError,
    IndexRefused,
    IndexUnavailable,
    MemoryPipelineError,
)

API_KEY_SECRET = "qdrant_api_key"  # noqa: S105 - the name of the secret, as in `Settings.secret`
_ATTEMPTS = 3
_FIRST_PAUSE = 0.1  # seconds, doubled with every attempt
_KEEP_ALIVE = 3.0  # seconds; the server closes an idle connection after five
_DEFAULT_PORT = 6333  # the client's, for https too

# The last two are what the client raises on an answer that is not JSON, or without the result that it expects.
_FAILURES = (ApiException, QdrantException, ValueError, AssertionError)
_REFUSED = (
    httpx.codes.BAD_REQUEST,
    httpx.codes.CONFLICT,
    httpx.codes.REQUEST_ENTITY_TOO_LARGE,
    httpx.codes.UNPROCESSABLE_ENTITY,
)
_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)

T = TypeVar("T")


class Connection:
    """Threads may share one."""

    def __init__(self, url: str, *, api_key: str | None, timeout: int) -> None:
        """Prepare the connection; nothing is sent yet.

        Raises:
            ConfigurationError: `url` is not an address.
        """
        self._timeout = timeout
        try:
            self.address, loopback = _address(url)
            self._client = QdrantClient(
                url=url,
                prefer_grpc=False,
                check_compatibility=False,
                timeout=timeout,
                headers={"api-key": api_key} if api_key else None,
                limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE),
                trust_env=not loopback,  # a proxy of the environment cannot reach this machine's own servers
            )
        except ValueError as error:
            raise ConfigurationError(
                f"the address of Qdrant cannot be used: {error}", hint="set MEMORY_QDRANT_URL to http://host:port"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def call(self, operation: str, collection: str, request: Callable[[QdrantClient], T]) -> T:
        """Send a request, again after a pause while no connection can be made: nothing was sent then.

        Args:
            operation: what is being done, for the error: `did not <operation> collection 'x'`.
            collection: name of the collection or alias.

        Raises:
            CollectionMissing: the server has no such collection.
            IndexRefused: the server does not take this request, whenever it is sent.
            IndexUnavailable: the server is down, takes too long, or does not answer as Qdrant does.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return request(self._client)
            except _FAILURES as error:
                failure = error
            if attempt == _ATTEMPTS or not isinstance(_source(failure), _NOT_CONNECTED):
                break
            time.sleep(_FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))  # noqa: S311
        raise self._named(operation, collection, failure) from failure

    def _named(self, operation: str, collection: str, failure: Exception) -> MemoryPipelineError:
        if isinstance(failure, UnexpectedResponse):
            status, said = failure.status_code, _said(failure.content)
            if status == httpx.codes.NOT_FOUND and "Collection" in said:
                return CollectionMissing(collection)
            reason = f"status {status}, {said}"
        else:
            status, reason = None, self._reason(_source(failure))
        kind = IndexRefused if status in _REFUSED else IndexUnavailable
        return kind(
            f"Qdrant at {self.address} did not {operation} collection {collection!r}: {reason}", hint=_hint(status)
        )

    def _reason(self, source: Exception) -> str:
        match source:
            case httpx.ConnectError():
                return "no connection"
            case httpx.TimeoutException():
                return f"no answer within {self._timeout} s"
            case httpx.HTTPError():
                return f"the connection broke, {source}"
            case QdrantException():
                return str(source)
            case _:
                return "the answer is not one of Qdrant's"


def _source(failure: Exception) -> Exception:
    """What the client wrapped."""
    return failure.source if isinstance(failure, ResponseHandlingException) else failure


def _hint(status: int | None) -> str:
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return f"check the secret {API_KEY_SECRET!r}, the server's API key"
    if status is not None and httpx.codes.is_client_error(status):
        return "the server runs and refuses: check its release, and whether somebody else changed the collection"
    return "check that it runs and that MEMORY_QDRANT_URL names it, then try again"


def _said(content: bytes) -> str:
    """The server's own words: Qdrant's `status.error`, or the start of any other body."""
    text = content.decode("utf-8", "replace")
    try:
        return str(json.loads(text)["status"]["error"])
    except (ValueError, TypeError, LookupError):
        return " ".join(text.split())[:200] or "nothing more"


def _address(url: str) -> tuple[str, bool]:
    """An address without the name and password in it, and whether it is this machine."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ValueError("it names no host of http or https")
    shown = f"{parts.scheme}://{parts.hostname}:{parts.port or _DEFAULT_PORT}"
    return shown, parts.hostname in {"localhost", "::1"} or parts.hostname.startswith("127.")
