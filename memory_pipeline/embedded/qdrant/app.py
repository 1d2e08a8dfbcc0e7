"""The web application: routes, keys, body limit and Qdrant's envelope around every answer."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memory_pipeline.embedded.qdrant import body, collections_api, points_api
from memory_pipeline.embedded.qdrant.body import Json
from memory_pipeline.embedded.qdrant.calls import Call
from memory_pipeline.embedded.qdrant.errors import (
    ApiError,
    BodyTooLarge,
    EngineFailed,
    FormatError,
    NameRefused,
    NotServed,
    WrongParameter,
)
from memory_pipeline.embedded.qdrant.storage import Storage

log = logging.getLogger(__name__)

# The version of the API served; a client warns of one that is more than a minor version from its own.
API_VERSION = "1.19.0"
TITLE = "qdrant - vector search engine (embedded in memory_pipeline)"
MAX_BODY_BYTES = 32 * 1024 * 1024
FLUSH_SECONDS = 2.0

_OPEN_PATHS = ("/", "/healthz", "/readyz", "/livez")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

Handler = Callable[[Storage, Call], Any]

_READING: list[tuple[str, str, Handler]] = [
    ("GET", "/collections", collections_api.list_collections),
    ("GET", "/aliases", collections_api.list_aliases),
    ("GET", "/collections/{name}", collections_api.collection_info),
    ("GET", "/collections/{name}/exists", collections_api.collection_exists),
    ("GET", "/collections/{name}/aliases", collections_api.collection_aliases),
    ("GET", "/collections/{name}/points/{id}", points_api.get_point),
    ("DELETE", "/collections/{name}", collections_api.delete_collection),
    ("DELETE", "/collections/{name}/index/{field_name}", collections_api.delete_index),
    ("DELETE", "/collections/{name}/vectors/{vector_name}", collections_api.delete_vector),
]
_WITH_BODY: list[tuple[str, str, Handler]] = [
    ("POST", "/collections/aliases", collections_api.change_aliases),
    ("PUT", "/collections/{name}", collections_api.create_collection),
    ("PATCH", "/collections/{name}", collections_api.update_collection),
    ("PUT", "/collections/{name}/index", collections_api.create_index),
    ("PUT", "/collections/{name}/vectors/{vector_name}", collections_api.create_vector),
    ("PUT", "/collections/{name}/points", points_api.upsert),
    ("POST", "/collections/{name}/points", points_api.retrieve),
    ("POST", "/collections/{name}/points/batch", points_api.batch),
    ("POST", "/collections/{name}/points/query", points_api.query),
    ("POST", "/collections/{name}/points/query/batch", points_api.query_batch),
    ("POST", "/collections/{name}/points/scroll", points_api.scroll),
    ("POST", "/collections/{name}/points/count", points_api.count),
    ("POST", "/collections/{name}/points/delete", points_api.delete_points),
    ("POST", "/collections/{name}/points/payload", points_api.set_payload),
    ("PUT", "/collections/{name}/points/payload", points_api.overwrite_payload),
    ("POST", "/collections/{name}/points/payload/delete", points_api.delete_payload),
    ("POST", "/collections/{name}/points/payload/clear", points_api.clear_payload),
    ("PUT", "/collections/{name}/points/vectors", points_api.update_vectors),
    ("POST", "/collections/{name}/points/vectors/delete", points_api.delete_vectors),
]


def make_app(storage: Storage, api_key: str | None = None) -> ASGIApp:
    """The server as an ASGI application. Requests are served one after another: the engine knows no other way."""
    routes = [
        Route("/", _version),
        Route("/healthz", _plain("healthz check passed")),
        Route("/livez", _plain("healthz check passed")),
        Route("/readyz", _plain("all shards are ready")),
        *(
            Route(path, _endpoint(storage, handler, reads_body=False), methods=[method])
            for method, path, handler in _READING
        ),
        *(
            Route(path, _endpoint(storage, handler, reads_body=True), methods=[method])
            for method, path, handler in _WITH_BODY
        ),
        Route("/{rest:path}", _not_served, methods=_METHODS),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_RawPaths), *([Middleware(_Keys, api_key=api_key)] if api_key else [])],
        exception_handlers={Exception: _unexpected},
        lifespan=_flushing(storage),
    )


def _endpoint(storage: Storage, handler: Handler, *, reads_body: bool) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        started = time.perf_counter()
        try:
            content = await _read_body(request) if reads_body else b""
            call = Call(
                path={name: _decoded(part) for name, part in request.path_params.items()},
                body=_parsed(request.headers, content) if reads_body else None,
                wait=_wait(request.query_params),
            )
            result = handler(storage, call)
        except ApiError as refusal:
            return _refused(refusal, started)
        except RecursionError:
            return _refused(FormatError("recursion limit exceeded"), started)
        except OSError as error:  # the registry or a folder cannot be written
            log.exception("%s %s failed", request.method, request.url.path)
            return _refused(EngineFailed(str(error)), started)
        except ClientDisconnect:
            return Response(status_code=400)
        return _json(200, {"result": result, "status": "ok", "time": time.perf_counter() - started})

    return respond


async def _read_body(request: Request) -> bytes:
    """The whole body. One that is too large is read to its end all the same, so that the client hears the refusal."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(size, MAX_BODY_BYTES)
    return b"".join(chunks)


def _parsed(headers: Headers, content: bytes) -> Json:
    """A body must say that it is JSON: a web page can make a browser send a form to this machine, but not that."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise FormatError("Content type error: expected application/json")
    return body.parse(content)


def _wait(parameters: Mapping[str, str]) -> bool:
    wait = parameters.get("wait", "false")
    if wait not in ("true", "false"):
        raise WrongParameter(f"`wait`: provided string was not `true` or `false`: {wait[:80]}")
    if parameters.get("ordering", "weak") not in ("weak", "medium", "strong"):
        raise WrongParameter(f"`ordering`: unknown variant `{parameters['ordering'][:80]}`")
    return wait == "true"


def _decoded(part: str) -> str:
    try:
        decoded = unquote_to_bytes(part.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongParameter(f"{part[:80]} is not UTF-8") from error
    if not decoded:
        raise NameRefused("a name cannot be empty")
    return decoded


async def _version(_: Request) -> Response:
    return _json(200, {"title": TITLE, "version": API_VERSION})


def _plain(text: str) -> Callable[[Request], Any]:
    async def respond(_: Request) -> Response:
        return PlainTextResponse(text)

    return respond


async def _not_served(request: Request) -> Response:
    started = time.perf_counter()
    with suppress(ClientDisconnect):
        async for _ in request.stream():
            pass
    return _refused(NotServed(f"{request.method} {request.scope['path'][:100]}"), started)


async def _unexpected(request: Request, error: Exception) -> Response:
    return _refused(
        EngineFailed(f"{type(error).__name__} in {request.method}; see the server's log"), time.perf_counter()
    )


def _refused(refusal: ApiError, started: float) -> Response:
    return _json(refusal.status, {"status": {"error": refusal.message}, "time": time.perf_counter() - started})


def _json(status: int, content: object) -> Response:
    encoded = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    return Response(encoded, status_code=status, media_type="application/json")


def _flushing(storage: Storage) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_flush_for_ever(storage))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return lifespan


async def _flush_for_ever(storage: Storage) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        try:
            storage.flush()
        except (ApiError, OSError) as failure:
            log.error("could not flush, will try again: %s", failure)


class _RawPaths:
    """Routes by the path as it was sent, so that an encoded slash stays within its name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


class _Keys:
    """Lets in who shows the key, in `api-key` or as a bearer token."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse(refusal, status_code=401)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        if scope["path"] in _OPEN_PATHS:
            return None
        headers = Headers(scope=scope)
        shown = headers.get("api-key")
        if shown is None and headers.get("authorization", "").startswith("Bearer "):
            shown = headers["authorization"].removeprefix("Bearer ")
        if shown is None:
            return "Must provide an API key or an Authorization bearer token"
        return None if hmac.compare_digest(shown.encode("latin-1"), self._key) else "Invalid API key or JWT"
