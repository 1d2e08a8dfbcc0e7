"""The HTTP side: Ollama's paths, answers and errors for a server with one model that embeds.

Every error answers `{"error": "..."}` with the status that Ollama gives. What is not served is refused by name.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from memory_pipeline.embedded.ollama.encoder import CONTEXT_LENGTH, DIMENSIONS, Encoder
from memory_pipeline.embedded.ollama.requests import ApiError, Body, EmbedBody, ShowBody, parse

VERSION = "0.13.0"  # the release whose answers these are
MODEL = "universal-sentence-encoder:latest"
FAMILY = "universal-sentence-encoder"

# What one request may ask, so that its answer stays within about 100 MB of memory.
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_TEXTS = 10_000

# Texts of one request handed to the workers at a time, some to a worker: between two such turns other requests get
# theirs, and a client that has gone away is noticed.
_TURN = 16
_JOB = 4

_OLLAMA_PATHS = ("/api/", "/v1/")

BodyT = TypeVar("BodyT", bound=Body)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def make_app(workers: int) -> Starlette:
    """The application. `workers` threads encode; the model is loaded in one of them from the start on."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with ThreadPoolExecutor(workers, thread_name_prefix="encode") as pool:
            app.state.pool = pool
            app.state.encoder = asyncio.wrap_future(pool.submit(Encoder.load))
            yield

    handlers: dict[Any, Any] = {ApiError: _refused, HTTPException: _no_such_path, Exception: _failed}
    return Starlette(
        routes=[
            Route("/", _running, methods=["GET"]),
            Route("/api/version", _version, methods=["GET"]),
            Route("/api/tags", _tags, methods=["GET"]),
            Route("/api/show", _show, methods=["POST"]),
            Route("/api/embed", _embed, methods=["POST"]),
        ],
        exception_handlers=handlers,
        lifespan=lifespan,
    )


async def _running(_: Request) -> Response:
    return PlainTextResponse("Ollama is running")


async def _version(_: Request) -> Response:
    return JSONResponse({"version": VERSION})


async def _tags(request: Request) -> Response:
    weights = (await _encoder(request)).weights
    entry = {
        "name": MODEL,
        "model": MODEL,
        "modified_at": weights.modified_at.isoformat(),
        "size": weights.size,
        "digest": weights.digest,
        "details": _details(weights.parameters),
    }
    return JSONResponse({"models": [entry]})


async def _show(request: Request) -> Response:
    body = await _body(request, ShowBody)
    model = body.model or body.name
    if not model:
        raise ApiError(400, "model is required")
    if not _is_ours(model):
        raise ApiError(404, f"model '{model}' not found")
    weights = (await _encoder(request)).weights
    return JSONResponse(
        {
            "license": "Apache License, Version 2.0",
            "modelfile": f"# FROM {MODEL}\n",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _details(weights.parameters),
            "model_info": {
                "general.architecture": FAMILY,
                "general.license": "apache-2.0",
                "general.parameter_count": weights.parameters,
                f"{FAMILY}.context_length": CONTEXT_LENGTH,
                f"{FAMILY}.embedding_length": DIMENSIONS,
            },
            "capabilities": ["embedding"],
            "modified_at": weights.modified_at.isoformat(),
        }
    )


async def _embed(request: Request) -> Response:
    started = time.perf_counter_ns()
    body = await _body(request, EmbedBody)
    texts = body.texts()
    if not body.model:
        raise ApiError(400, "model is required")
    if not _is_ours(body.model):
        raise ApiError(404, f'model "{body.model}" not found, try pulling it first')
    if len(texts) > MAX_TEXTS:
        raise ApiError(413, f"{len(texts)} texts in one request; at most {MAX_TEXTS} are taken")
    encoder = await _encoder(request)
    loaded = time.perf_counter_ns()
    if not texts:
        return JSONResponse({"model": body.model, "embeddings": []})

    limit = body.context_length(CONTEXT_LENGTH)
    readings = await _on_workers(request, lambda text: encoder.read(text, limit), texts)
    if body.truncate is False and any(reading.cut for reading in readings):
        raise ApiError(400, "the input length exceeds the context length")
    vectors = await _on_workers(request, lambda reading: _written(encoder.vector(reading), body.dimensions), readings)
    metrics = {
        "total_duration": time.perf_counter_ns() - started,
        "load_duration": loaded - started,
        "prompt_eval_count": sum(len(reading.ids) for reading in readings),
    }
    return Response(_embed_answer(body.model, vectors, metrics), media_type="application/json")


async def _on_workers(request: Request, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
    """Do `work` on each item in the worker threads, in turns, so that a large request does not hold up a small one."""
    loop = asyncio.get_running_loop()
    pool = request.app.state.pool

    def job(some: Sequence[ItemT]) -> list[ResultT]:
        return [work(item) for item in some]

    done: list[ResultT] = []
    for turn in range(0, len(items), _TURN):
        if await request.is_disconnected():
            raise ApiError(499, "request canceled")
        jobs = [items[start : start + _JOB] for start in range(turn, min(turn + _TURN, len(items)), _JOB)]
        for results in await asyncio.gather(*(loop.run_in_executor(pool, job, some) for some in jobs)):
            done += results
    return done


def _written(vector: NDArray[np.float32], dimensions: int | None) -> bytes:
    """One vector as JSON, cut to its first `dimensions` and brought back to length one if that is fewer than it has."""
    if dimensions is not None and 0 < dimensions < len(vector):
        vector = vector[:dimensions] / np.linalg.norm(vector[:dimensions])
    return f"[{','.join(map('%.9g'.__mod__, vector.tolist()))}]".encode()  # nine digits tell every float32 apart


def _embed_answer(model: str, vectors: Sequence[bytes], metrics: dict[str, int]) -> bytes:
    """The answer's JSON around vectors already written: as Python numbers they would take four times the room."""
    head = json.dumps({"model": model}).removesuffix("}").encode()
    tail = json.dumps(metrics).removeprefix("{").encode()
    return b"".join((head, b', "embeddings": [', b",".join(vectors), b"], ", tail))


async def _body(request: Request, kind: type[BodyT]) -> BodyT:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise ApiError(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
    return parse(kind, bytes(received))


async def _encoder(request: Request) -> Encoder:
    """The model, once it is loaded; a request that is given up meanwhile does not stop the loading."""
    encoder: Encoder = await asyncio.shield(request.app.state.encoder)
    return encoder


def _is_ours(model: str) -> bool:
    return model.casefold() in (MODEL, FAMILY)


def _details(parameters: int) -> dict[str, object]:
    return {
        "parent_model": "",
        "format": "npz",
        "family": FAMILY,
        "families": [FAMILY],
        "parameter_size": f"{parameters / 1e6:.1f}M",
        "quantization_level": "Q8",
    }


async def _refused(_: Request, error: ApiError) -> Response:
    return JSONResponse({"error": error.message}, status_code=error.status)


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    if error.status_code == 405:
        message = f"{request.method} is not allowed on {path}"
    elif path.startswith(_OLLAMA_PATHS):
        return JSONResponse({"error": f"{path} is not served: this server only embeds, by /api/embed"}, status_code=501)
    else:
        message = f"there is nothing at {path}"
    return JSONResponse({"error": message}, status_code=error.status_code, headers=error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)
