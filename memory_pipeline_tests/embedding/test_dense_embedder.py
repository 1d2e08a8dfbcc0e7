"""The embedder against a server that answers well, badly, late, or not at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from memory_pipeline.core.errors import (
    BadText,
    ConfigurationError,
    EmbedderUnavailable,
    ModelMissing,
    TextTooLong,
    UselessVector,
)
from memory_pipeline.embedding import dense
from memory_pipeline.embedding.dense import DenseEmbedder, Embedded
from memory_pipeline_tests.embedding.scripted_ollama import DIMENSIONS, Reply, ScriptedOllama, vector

TEXTS = [f"concept number {number}" for number in range(10)]


@pytest.fixture
def embedder(scripted: ScriptedOllama) -> Iterator[DenseEmbedder]:
    with DenseEmbedder(scripted.url, timeout=5) as made:
        yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_FIRST_PAUSE", 0.01)


@pytest.fixture
def hasty(scripted: ScriptedOllama) -> Iterator[DenseEmbedder]:
    """An embedder that waits a fifth of a second for an answer."""
    with DenseEmbedder(scripted.url, timeout=0.2, attempts=2) as made:
        yield made


def unit(text: str) -> np.ndarray:
    return np.asarray(vector(text), dtype=np.float32) / 2


def spoiled(position_of: str, row: object) -> object:
    """A fault that gives one text's vector another form."""

    def fault(texts: list[str]) -> Reply | None:
        rows: list[object] = [row if text == position_of else vector(text) for text in texts]
        return 200, {"model": "tiny", "embeddings": rows}

    return fault


# --- describe ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "tiny:latest"])
def test_a_model_is_found_with_and_without_its_tag(embedder: DenseEmbedder, name: str) -> None:
    info = embedder.describe(name)
    assert (info.name, info.digest, info.dimensions, info.context_length) == ("tiny:latest", "d1", DIMENSIONS, 64)


def test_a_tag_other_than_latest_is_never_guessed(embedder: DenseEmbedder) -> None:
    with pytest.raises(ModelMissing, match=r"no model 'other' \(it has: other:1b, tiny:latest\)"):
        embedder.describe("other")


def test_a_model_that_does_not_say_its_length_is_measured(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.family = {}
    info = embedder.describe("tiny")
    assert (info.dimensions, info.context_length) == (DIMENSIONS, None)


# --- embed -------------------------------------------------------------------------------------------------------


def test_one_unit_vector_per_text_in_order(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    outcomes = embedder.embed("tiny", TEXTS, dimensions=DIMENSIONS)
    for text, outcome in zip(TEXTS, outcomes, strict=True):
        assert isinstance(outcome, Embedded)
        assert outcome.vector.dtype == np.float32
        assert not outcome.pooled
        np.testing.assert_allclose(outcome.vector, unit(text), atol=1e-6)
    assert scripted.bodies[0]["truncate"] is False
    assert "dimensions" not in scripted.bodies[0]


def test_nothing_is_asked_for_no_texts(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    assert embedder.embed("tiny", [], dimensions=None) == []
    assert scripted.batches == []


def test_batches_are_bounded_by_count_and_by_bytes(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    embedder.embed("tiny", [f"t{number}" for number in range(150)], dimensions=None)
    assert [len(batch) for batch in scripted.batches] == [64, 64, 22]
    scripted.batches.clear()
    embedder.embed("tiny", ["à" * 30_000] * 5, dimensions=None)
    assert [len(batch) for batch in scripted.batches] == [2, 2, 1]


@pytest.mark.parametrize("text", ["", " \n\t", "a\x00b", "half \ud800 pair"])
def test_a_text_that_cannot_be_sent_fails_alone(embedder: DenseEmbedder, text: str) -> None:
    first, bad, last = embedder.embed("tiny", ["one", text, "two"], dimensions=None)
    assert isinstance(first, Embedded)
    assert isinstance(bad, BadText)
    assert isinstance(last, Embedded)
    with pytest.raises(BadText):
        embedder.embed_query("tiny", text, dimensions=None)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param([0.0] * DIMENSIONS, "zeros", id="zero"),
        pytest.param([1e-45] * DIMENSIONS, "zeros", id="as good as zero"),
        pytest.param([float("nan")] + [1.0] * (DIMENSIONS - 1), "not finite", id="nan"),
        pytest.param([float("inf")] + [1.0] * (DIMENSIONS - 1), "not finite", id="infinity"),
        pytest.param([1e308] * DIMENSIONS, "not finite", id="too large for the index"),
        pytest.param([1.0] * 3, "3 numbers, not 8", id="short"),
        pytest.param([], "0 numbers", id="empty"),
        pytest.param([None] * DIMENSIONS, "on this text alone", id="null"),
        pytest.param("0.1", "on this text alone", id="no list"),
    ],
)
def test_a_useless_vector_spoils_only_its_own_text(
    embedder: DenseEmbedder, scripted: ScriptedOllama, row: object, said: str
) -> None:
    scripted.fault = spoiled(TEXTS[6], row)
    outcomes = embedder.embed("tiny", TEXTS, dimensions=DIMENSIONS)
    assert [position for position, outcome in enumerate(outcomes) if not isinstance(outcome, Embedded)] == [6]
    assert isinstance(outcomes[6], UselessVector)
    assert said in outcomes[6].message
    with pytest.raises(EmbedderUnavailable):
        embedder.embed_query("tiny", TEXTS[6], dimensions=DIMENSIONS)


def test_a_text_that_breaks_the_server_fails_alone(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    """What Ollama does on a vector with NaN: status 500 for the whole batch."""
    broken = {"error": "failed to encode response: json: unsupported value: NaN"}
    scripted.fault = lambda texts: (500, broken) if {TEXTS[2], TEXTS[7]} & set(texts) else None
    outcomes = embedder.embed("tiny", TEXTS, dimensions=DIMENSIONS)
    failed = {position: outcome for position, outcome in enumerate(outcomes) if isinstance(outcome, UselessVector)}
    assert set(failed) == {2, 7}
    assert "unsupported value: NaN" in failed[2].message
    assert sum(isinstance(outcome, Embedded) for outcome in outcomes) == 8


def test_a_batch_too_slow_for_the_time_limit_is_sent_in_halves(hasty: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.fault = lambda texts: scripted.hang() if len(texts) > 3 else None
    outcomes = hasty.embed("tiny", TEXTS, dimensions=DIMENSIONS)
    assert all(isinstance(outcome, Embedded) for outcome in outcomes)
    np.testing.assert_allclose(outcomes[9].vector, unit(TEXTS[9]), atol=1e-6)


# --- long texts --------------------------------------------------------------------------------------------------

LONG = "Prima frase del testo lungo. " + "Altra frase con parole sue. " * 20 + "Il fatto che conta sta alla fine."


def test_a_text_beyond_the_context_is_pooled_and_says_so(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.context = 30
    before, pooled, after = embedder.embed("tiny", ["short", LONG, "short too"], dimensions=DIMENSIONS)
    assert isinstance(pooled, Embedded)
    assert pooled.pooled
    assert np.linalg.norm(pooled.vector) == pytest.approx(1.0, abs=1e-6)
    assert isinstance(before, Embedded)
    assert isinstance(after, Embedded)
    assert not before.pooled
    assert not after.pooled


def test_no_word_of_a_long_text_is_lost(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.context = 30
    embedder.embed("tiny", [LONG], dimensions=DIMENSIONS)
    sent = " ".join(text for text in scripted.batches[-1])
    assert sent.split() == LONG.split()
    assert all(text.endswith(".") for text in scripted.batches[-1])


def test_pieces_weigh_by_their_length(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.context = 30
    outcome = embedder.embed("tiny", [LONG], dimensions=DIMENSIONS)[0]
    parts = scripted.batches[-1]
    expected = sum(len(part) * unit(part) for part in parts)
    assert isinstance(outcome, Embedded)
    np.testing.assert_allclose(outcome.vector, expected / np.linalg.norm(expected), atol=1e-6)


def test_a_long_text_has_one_vector_alone_in_a_batch_and_as_a_question(
    embedder: DenseEmbedder, scripted: ScriptedOllama
) -> None:
    scripted.context = 30
    alone = embedder.embed("tiny", [LONG], dimensions=DIMENSIONS)[0]
    among = embedder.embed("tiny", [*TEXTS, LONG, *TEXTS], dimensions=DIMENSIONS)[len(TEXTS)]
    np.testing.assert_array_equal(alone.vector, among.vector)
    np.testing.assert_array_equal(alone.vector, embedder.embed_query("tiny", LONG, dimensions=DIMENSIONS))


def test_a_model_that_refuses_every_length_gets_a_named_error(
    embedder: DenseEmbedder, scripted: ScriptedOllama
) -> None:
    refusal = {"error": "input length exceeds maximum context length"}
    scripted.fault = lambda texts: (400, refusal) if any("parole" in text for text in texts) else None
    short, long = embedder.embed("tiny", ["short", "parole " * 500], dimensions=DIMENSIONS)
    assert isinstance(short, Embedded)
    assert isinstance(long, TextTooLong)
    with pytest.raises(TextTooLong, match="too long for tiny"):
        embedder.embed_query("tiny", "parole " * 500, dimensions=DIMENSIONS)


def test_a_useless_piece_makes_its_text_useless(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    def fault(texts: list[str]) -> Reply | None:
        if any(len(text.split()) > 30 for text in texts):
            return None
        return 200, {"embeddings": [[0.0] * DIMENSIONS if "conta" in text else vector(text) for text in texts]}

    scripted.context, scripted.fault = 30, fault
    short, long = embedder.embed("tiny", ["short", LONG], dimensions=DIMENSIONS)
    assert isinstance(short, Embedded)
    assert isinstance(long, UselessVector)


def test_a_piece_that_breaks_the_server_spoils_only_its_text(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.context = 30
    broken = {"error": "unsupported value: NaN"}
    scripted.fault = lambda texts: (
        (500, broken) if max(len(t.split()) for t in texts) <= 30 and "conta" in str(texts) else None
    )
    short, long = embedder.embed("tiny", ["short", LONG], dimensions=DIMENSIONS)
    assert isinstance(short, Embedded)
    assert isinstance(long, UselessVector)


# --- servers that fail -------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_named_without_its_password() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    embedder = DenseEmbedder(f"http://user:hush@127.0.0.1:{port}", timeout=5, attempts=2)
    for call in (
        lambda: embedder.describe("tiny"),
        lambda: embedder.embed("tiny", ["text"], dimensions=None),
        lambda: embedder.embed_query("tiny", "text", dimensions=None),
    ):
        with pytest.raises(EmbedderUnavailable, match=f"127.0.0.1:{port} did not .*: no connection") as caught:
            call()
        assert "hush" not in str(caught.value)
        assert type(caught.value) is EmbedderUnavailable


@pytest.mark.parametrize("url", ["http://[::1", "http://host:not-a-port", "ftp://host:1", "http://"])
def test_an_address_that_is_none_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the address of the embedder"):
        DenseEmbedder(url, timeout=5)


def test_a_fault_that_passes_is_ridden_out(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    faults = iter([(503, {"error": "busy"}), (500, b"not json"), None])
    scripted.fault = lambda texts: next(faults, None)
    assert isinstance(embedder.embed("tiny", ["text"], dimensions=None)[0], Embedded)
    assert len(scripted.batches) == 3


def test_a_slow_first_answer_is_ridden_out(hasty: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.fault = lambda texts: scripted.hang() if len(scripted.batches) == 1 else None
    np.testing.assert_allclose(hasty.embed_query("tiny", "text", dimensions=None), unit("text"), atol=1e-6)


def test_a_server_that_never_answers_is_given_up(hasty: DenseEmbedder, scripted: ScriptedOllama) -> None:
    scripted.fault = lambda texts: scripted.hang()
    with pytest.raises(EmbedderUnavailable, match=r"did not embed 10 texts with tiny: no answer within 0.2 s"):
        hasty.embed("tiny", TEXTS, dimensions=None)
    with pytest.raises(EmbedderUnavailable, match=r"no answer within 0.2 s"):
        hasty.embed_query("tiny", "text", dimensions=None)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param((500, {"error": "out of memory"}), id="500"),
        pytest.param((502, b"<html>bad gateway</html>"), id="502 of a proxy"),
        pytest.param((500, b"[]"), id="500 with a list"),
        pytest.param((200, b"not json"), id="not json"),
        pytest.param((200, []), id="a list"),
        pytest.param((200, {}), id="no vectors"),
        pytest.param((200, {"embeddings": "none"}), id="vectors of another shape"),
    ],
)
def test_a_server_that_always_fails_is_given_up_after_the_attempts(
    embedder: DenseEmbedder, scripted: ScriptedOllama, reply: Reply
) -> None:
    scripted.fault = lambda texts: reply
    with pytest.raises(EmbedderUnavailable) as caught:
        embedder.embed("tiny", TEXTS, dimensions=None)
    assert type(caught.value) is EmbedderUnavailable
    assert [len(batch) for batch in scripted.batches] == [10, 10, 10, 1]
    with pytest.raises(EmbedderUnavailable):
        embedder.embed_query("tiny", "text", dimensions=None)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_what_the_server_refuses_is_not_repeated(
    embedder: DenseEmbedder, scripted: ScriptedOllama, status: int
) -> None:
    scripted.fault = lambda texts: (status, {"error": "no"})
    with pytest.raises(EmbedderUnavailable, match=f"status {status}, no"):
        embedder.embed_query("tiny", "text", dimensions=None)
    assert len(scripted.batches) == 1


@pytest.mark.parametrize("shift", [-1, 1])
def test_another_number_of_answers_than_of_texts_is_never_used(
    embedder: DenseEmbedder, scripted: ScriptedOllama, shift: int
) -> None:
    def fault(texts: list[str]) -> Reply:
        return 200, {"embeddings": [vector("any")] * (len(texts) + shift)}

    scripted.fault = fault
    with pytest.raises(EmbedderUnavailable, match=f"answered 10 texts with {10 + shift} vectors"):
        embedder.embed("tiny", TEXTS, dimensions=None)
    with pytest.raises(EmbedderUnavailable):
        embedder.embed_query("tiny", "text", dimensions=None)


def test_a_model_that_is_not_there_is_one_clear_error(embedder: DenseEmbedder, scripted: ScriptedOllama) -> None:
    for call in (
        lambda: embedder.describe("absent"),
        lambda: embedder.embed("absent", TEXTS, dimensions=None),
        lambda: embedder.embed_query("absent", "text", dimensions=None),
    ):
        with pytest.raises(ModelMissing, match=r"no model 'absent' \(it has: other:1b, tiny:latest\)"):
            call()
    assert len(scripted.batches) == 2


def test_threads_share_one_embedder(embedder: DenseEmbedder) -> None:
    found: dict[str, np.ndarray] = {}

    def ask(text: str) -> None:
        found[text] = embedder.embed_query("tiny", text, dimensions=DIMENSIONS)

    threads = [threading.Thread(target=ask, args=(text,)) for text in TEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in TEXTS:
        np.testing.assert_allclose(found[text], unit(text), atol=1e-6)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    scripted: ScriptedOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with DenseEmbedder(scripted.url, timeout=5, attempts=1) as embedder:
        assert embedder.describe("tiny").name == "tiny:latest"
