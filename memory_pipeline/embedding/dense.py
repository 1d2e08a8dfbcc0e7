"""Dense vectors from an Ollama server, through its own client.

What the client does and this module undoes: it has no time-out unless told; a refused connection is the builtin
`ConnectionError`, while a time-out while reading comes out as `httpx.ReadTimeout`; an answer that is not JSON, or JSON
of another shape, comes out as whatever Python raises on it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import httpx
import numpy as np
import numpy.typing as npt
from ollama import Client, ResponseError
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import (
    BadText,
    ConfigurationError,
    EmbedderUnavailable,
    ModelMissing,
    TextTooLong,
    UselessVector,
)
from memory_pipeline.core.text import require_storable
from memory_pipeline.embedding.sentences import pieces

Vector: TypeAlias = npt.NDArray[np.float32]

_BATCH_TEXTS = 64
_BATCH_BYTES = 128 * 1024
_SMALLEST_PIECE = 16  # characters; a model that refuses so few is not refusing their number
_MOST_PIECES = 512
_CONNECT_SECONDS = 5.0
_FIRST_PAUSE = 0.2  # seconds, doubled with every attempt
_LONGEST_PAUSE = 5.0
_PROBE = "memory"
_TOO_LONG = ("context length", "context size", "too large to process")  # how releases of Ollama word it

# The last three are what the client raises on an answer that is not JSON, or JSON of another shape.
_FAILURES = (ResponseError, ConnectionError, httpx.HTTPError, ValueError, TypeError, AttributeError)


class ModelInfo(BaseModel):
    """A model as the server describes it."""

    model_config = ConfigDict(frozen=True)

    name: str
    """In full, with its tag: `x` and `x:latest` have one name here."""
    digest: str
    """Of the model's content: two models with one digest give the same vectors."""
    dimensions: int
    context_length: int | None
    """Tokens that one text may have; none where the server does not say."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """The vector of one text, shape (d,), of length one."""

    vector: Vector
    pooled: bool
    """Whether the text was longer than the model's context: the vector is then the mean of its pieces'."""


Outcome: TypeAlias = Embedded | UselessVector | TextTooLong | BadText
"""What became of one text. Errors are handed over, not raised, so that only the card at fault waits."""

T = TypeVar("T")


class DenseEmbedder:
    """One connection to an Ollama server, kept open. Threads may share it."""

    def __init__(self, url: str, *, timeout: float, attempts: int = 3) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            url: address of the server. A name and a password in it are never shown.
            timeout: seconds that one request may take.
            attempts: how often a request is sent before a server that does not answer counts as down.

        Raises:
            ConfigurationError: `url` is not an address.
        """
        self._attempts = attempts
        self._timeout = timeout
        try:
            self._address, loopback = _address(url)
            self._client = Client(
                host=url,
                timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
                trust_env=not loopback,  # a proxy of the environment cannot reach this machine's own servers
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise ConfigurationError(
                f"the address of the embedder cannot be used: {error}", hint="set MEMORY_OLLAMA_URL to http://host:port"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def version(self) -> str:
        """The release of the server.

        Raises:
            EmbedderUnavailable: the server is down, or does not answer as an Ollama server does.
        """
        ask: Callable[[], httpx.Response] = partial(self._client._request_raw, "GET", "/api/version")  # no public way
        return str(self._tried("tell its version", lambda: ask().json()["version"]))

    def describe(self, model: str) -> ModelInfo:
        """Say what the server has under a model's name; `x` finds `x:latest`.

        Raises:
            ModelMissing: no such model; names those that are there.
            EmbedderUnavailable: the server is down, or does not answer as an Ollama server does.
        """
        digests = self._digests()
        name = next((name for name in (model, f"{model}:latest") if name in digests), None)
        if name is None:
            raise ModelMissing(model, digests)
        shown = self._tried(f"describe {name}", lambda: self._client.show(name), model=name)
        facts = shown.modelinfo or {}
        family = facts.get("general.architecture")
        return ModelInfo(
            name=name,
            digest=digests[name],
            dimensions=_count(facts.get(f"{family}.embedding_length")) or len(self._rows(name, [_PROBE])[0]),
            context_length=_count(facts.get(f"{family}.context_length")),
        )

    def embed(self, model: str, texts: Sequence[str], *, dimensions: int | None) -> list[Outcome]:
        """Embed texts, in batches bounded by count and bytes.

        A text longer than the model's context is never cut: it is split at sentences, and its vector is the mean of
        its pieces', weighted by their length. A text on which the embedder fails, while it is well on others, is the
        only one to fail.

        Args:
            dimensions: the length that vectors must have, if the caller knows; it is not asked of the server.

        Returns:
            One outcome per text, in order.

        Raises:
            ModelMissing: no such model.
            EmbedderUnavailable: the server is down or fails on any text, or answers with another number of vectors.
        """
        outcomes: dict[int, Outcome] = {}
        usable: list[tuple[int, str]] = []
        for position, text in enumerate(texts):
            if refusal := _refusal(text):
                outcomes[position] = refusal
            else:
                usable.append((position, text))
        embedded = (
            outcome
            for batch in _batches([text for _, text in usable])
            for outcome in self._outcomes(model, batch, dimensions)
        )
        outcomes.update(zip((position for position, _ in usable), embedded, strict=True))
        return [outcomes[position] for position in range(len(texts))]

    def embed_query(self, model: str, text: str, *, dimensions: int | None) -> Vector:
        """Embed one text, shape (d,), of length one; every failure is raised.

        Raises:
            BadText: the text is empty, or not valid Unicode.
            ModelMissing, EmbedderUnavailable, TextTooLong, UselessVector: as in `embed`.
        """
        if refusal := _refusal(text):
            raise refusal
        try:
            outcome: Outcome = _checked(self._rows(model, [text])[0], dimensions)
        except _BeyondContext:
            outcome = self._pooled(model, text, dimensions)
        if isinstance(outcome, Embedded):
            return outcome.vector
        raise outcome

    def _outcomes(
        self, model: str, texts: Sequence[str], dimensions: int | None, *, part: bool = False
    ) -> list[Outcome]:
        """Embed one batch; where that fails, its halves, until the text at fault stands alone.

        A half is a way to find that text: it is sent once, and the text again as often as any request.
        """
        try:
            rows = self._rows(model, texts, attempts=1 if part and len(texts) > 1 else self._attempts)
        except _BeyondContext:
            if len(texts) == 1:
                return [self._pooled_or_blamed(model, texts[0], dimensions)]
        except EmbedderUnavailable as error:
            blamed = self._blamed(model, error)
            if len(texts) == 1:
                return [blamed]
        else:
            return [_checked(row, dimensions) for row in rows]
        middle = len(texts) // 2
        halves = (texts[:middle], texts[middle:])
        return [outcome for half in halves for outcome in self._outcomes(model, half, dimensions, part=True)]

    def _pooled_or_blamed(self, model: str, text: str, dimensions: int | None) -> Outcome:
        try:
            return self._pooled(model, text, dimensions)
        except EmbedderUnavailable as error:
            return self._blamed(model, error)

    def _pooled(self, model: str, text: str, dimensions: int | None) -> Outcome:
        """Embed a text that is longer than the context in pieces as large as the model takes.

        Their size depends on the text and the model alone, so that a text always has the same vector.
        """
        longest = len(text) // 2
        while longest >= max(_SMALLEST_PIECE, len(text) // _MOST_PIECES):
            parts = pieces(text, longest)
            try:
                rows = [row for batch in _batches(parts) for row in self._rows(model, batch)]
            except _BeyondContext:
                longest //= 2
                continue
            return _mean([_checked(row, dimensions) for row in rows], [len(part) for part in parts])
        return TextTooLong(
            f"a text of {len(text)} characters is too long for {model}, even in {_MOST_PIECES} pieces",
            hint="shorten it, or split what it says over several cards",
        )

    def _blamed(self, model: str, error: EmbedderUnavailable) -> UselessVector:
        """A failure as that of the text where the embedder is well on another one; where it is not, raised again."""
        if error.__cause__ is None:  # a verdict on the server, not a request that failed
            raise error
        try:
            self._client.embed(model=model, input=[_PROBE], truncate=False)
        except _FAILURES:
            raise error from error.__cause__
        return UselessVector(
            f"on this text alone, {error.message}",
            hint="the card waits; change its text, or report it to whoever maintains the model",
        )

    def _rows(self, model: str, texts: Sequence[str], *, attempts: int | None = None) -> Sequence[Sequence[float]]:
        """One request for a vector of each text."""
        answer = self._tried(
            f"embed {len(texts)} {'text' if len(texts) == 1 else 'texts'} with {model}",
            lambda: self._client.embed(model=model, input=texts, truncate=False),
            model=model,
            attempts=attempts,
            # A batch that takes too long may be too much for one request: it is tried again as two.
            wait_again=len(texts) == 1,
        )
        if len(answer.embeddings) != len(texts):
            raise EmbedderUnavailable(
                f"the embedder at {self._address} answered {len(texts)} texts with {len(answer.embeddings)} vectors",
                hint="nothing of the answer was used; check the server and what stands between",
            )
        return answer.embeddings

    def _tried(
        self,
        operation: str,
        request: Callable[[], T],
        *,
        model: str = "",
        attempts: int | None = None,
        wait_again: bool = True,
    ) -> T:
        """Send a request, again after a pause where the server could not be reached, took too long or failed.

        Raises:
            EmbedderUnavailable: caused by what the client raised last.
            ModelMissing: the server does not have `model`.
            _BeyondContext: a text is longer than the model's context.
        """
        attempts = attempts or self._attempts
        for attempt in range(1, attempts + 1):
            try:
                return request()
            except _FAILURES as error:
                failure = error
            if isinstance(failure, ResponseError):
                if any(phrase in str(failure.error) for phrase in _TOO_LONG):
                    raise _BeyondContext from failure
                if failure.status_code == httpx.codes.NOT_FOUND and model:
                    raise ModelMissing(model, self._digests())
                if failure.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    break
            if attempt == attempts or (isinstance(failure, httpx.ReadTimeout) and not wait_again):
                break
            pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        raise EmbedderUnavailable(
            f"the embedder at {self._address} did not {operation}: {self._reason(failure)}", hint=_hint(failure)
        ) from failure

    def _digests(self) -> dict[str, str]:
        """The digest of each model that the server has, by its full name."""
        listed = self._tried("list its models", self._client.list)
        return {entry.model: entry.digest or "" for entry in listed.models if entry.model}

    def _reason(self, failure: Exception) -> str:
        match failure:
            case ResponseError():
                return f"status {failure.status_code}, {failure.error}"
            case ConnectionError():
                return "no connection"
            case httpx.TimeoutException():
                return f"no answer within {self._timeout:g} s"
            case httpx.HTTPError():
                return f"the connection broke, {failure}"
            case _:
                return "the answer is not one of Ollama's"


class _BeyondContext(Exception):
    """The server refused a batch since a text in it is longer than the model's context."""


def _address(url: str) -> tuple[str, bool]:
    """An address without the name and password in it, and whether it is this machine."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = parts.hostname
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("it names no host of http or https")
    shown = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
    return shown, host in {"localhost", "::1"} or host.startswith("127.")


def _count(fact: object) -> int | None:
    return fact if isinstance(fact, int) and fact > 0 else None


def _refusal(text: str) -> BadText | None:
    """Why a text is never sent: empty, or such that it has no UTF-8 form."""
    if not text.strip():
        return BadText("there is nothing to embed in an empty text", hint="write what it should be found by")
    try:
        require_storable(text, "a text to embed")
    except BadText as error:
        return error
    return None


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) == _BATCH_TEXTS or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch


def _checked(row: Sequence[float], dimensions: int | None) -> Embedded | UselessVector:
    """One answered vector at length one, or what is wrong with it."""
    if not row or (dimensions is not None and len(row) != dimensions):
        return _useless(f"a vector of {len(row)} numbers" + (f", not {dimensions}" if dimensions else ""))
    with np.errstate(over="ignore"):  # what is too large for the index becomes infinite, and is refused
        return _normalised(np.asarray(row, dtype=np.float64).astype(np.float32), pooled=False)


def _mean(parts: list[Embedded | UselessVector], weights: list[int]) -> Embedded | UselessVector:
    """The vector of a text from those of its pieces; the first useless piece makes it useless."""
    vectors: list[Vector] = []
    for part in parts:
        if isinstance(part, UselessVector):
            return part
        vectors.append(part.vector)
    if len({vector.size for vector in vectors}) != 1:
        return _useless("vectors of different lengths for the pieces of one text")
    return _normalised(np.average(np.stack(vectors), axis=0, weights=weights), pooled=True)


def _normalised(vector: npt.NDArray[np.floating], *, pooled: bool) -> Embedded | UselessVector:
    length = np.linalg.norm(vector.astype(np.float64))
    if not np.isfinite(length):
        return _useless("a vector with numbers that are not finite")
    if length < np.finfo(np.float32).tiny:
        return _useless("a vector of zeros")
    unit = (vector / length).astype(np.float32)
    unit.flags.writeable = False
    return Embedded(vector=unit, pooled=pooled)


def _useless(what: str) -> UselessVector:
    return UselessVector(
        f"the embedder gave {what}", hint="the card waits; check that the embedder still serves the model of the index"
    )


def _hint(failure: Exception) -> str:
    if isinstance(failure, ResponseError) and failure.status_code in (401, 403):
        return "the server asks for a key: set OLLAMA_API_KEY"
    return "check that it runs and that MEMORY_OLLAMA_URL names it, then try again"
