"""A real HTTP server that speaks Ollama's protocol and misbehaves as told."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from memory_pipeline_tests.http_server import Answer, Request, serving

DIMENSIONS = 8
Reply = tuple[int, object]
Fault = Callable[[list[str]], Reply | None]


def vector(text: str) -> list[float]:
    """A vector of length two that depends on the text alone."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    drawn = np.random.default_rng(seed).normal(size=DIMENSIONS)
    return [float(number) for number in 2 * drawn / np.linalg.norm(drawn)]


@dataclass
class ScriptedOllama:
    """Serves one model, `tiny:latest`, with a context of `context` words. `fault` may answer in place of it."""

    fault: Fault = lambda texts: None
    context: int = 1_000_000
    digest: str = "d1"
    family: dict[str, object] = field(
        default_factory=lambda: {
            "general.architecture": "tiny",
            "tiny.embedding_length": DIMENSIONS,
            "tiny.context_length": 64,
        }
    )
    batches: list[list[str]] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def hang(self) -> Reply:
        """Answer nothing until the test is over."""
        self.released.wait(60)
        return 200, {}

    def reply(self, path: str, body: dict[str, object]) -> Reply:
        if path == "/api/tags":
            return 200, {
                "models": [{"model": "tiny:latest", "digest": self.digest}, {"model": "other:1b", "digest": "d2"}]
            }
        if path == "/api/show":
            return 200, {"model_info": self.family}
        texts = body["input"]
        assert isinstance(texts, list)
        self.batches.append(texts)
        self.bodies.append(body)
        if answer := self.fault(texts):
            return answer
        if body["model"] not in ("tiny", "tiny:latest"):
            return 404, {"error": f'model "{body["model"]}" not found, try pulling it first'}
        if any(len(text.split()) > self.context for text in texts):
            return 400, {"error": "the input length exceeds the context length"}
        return 200, {"model": "tiny", "embeddings": [vector(text) for text in texts]}


@contextmanager
def serve() -> Iterator[ScriptedOllama]:
    """Run a scripted server on a free port of the loopback."""
    script = ScriptedOllama()

    def answer(request: Request) -> Answer:
        status, content = script.reply(request.path, request.content if request.method == "POST" else {})
        return Answer(status, content) if isinstance(content, bytes) else Answer.of(content, status)

    with serving(answer) as script.url:
        try:
            yield script
        finally:
            script.released.set()
