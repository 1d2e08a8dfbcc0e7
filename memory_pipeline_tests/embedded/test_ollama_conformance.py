"""What any Ollama server answers: the embedded one, or that of MEMORY_OLLAMA_URL with MEMORY_EMBEDDING_MODEL."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import ollama
import pytest

from memory_pipeline_tests.embedded.ollama_server import EmbeddedOllama

pytestmark = pytest.mark.integration

MODEL = "universal-sentence-encoder"


@dataclass(frozen=True)
class Target:
    """A server under test, by the unmodified client and by plain HTTP, and the model that it has."""

    client: ollama.Client
    http: httpx.Client
    model: str

    def embed(self, **body: Any) -> httpx.Response:
        """One request to /api/embed; the model is the one that is there unless the body names another."""
        return self.http.post("/api/embed", json={"model": self.model, **body})


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    url, model = os.environ.get("MEMORY_OLLAMA_URL"), os.environ.get("MEMORY_EMBEDDING_MODEL")
    if url and model:
        with httpx.Client(base_url=url, timeout=120) as http:
            yield Target(ollama.Client(host=url, timeout=120), http, model)
        return
    with (
        EmbeddedOllama(tmp_path_factory.mktemp("ollama")) as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http,
    ):
        yield Target(ollama.Client(host=server.url, timeout=60, trust_env=False), http, MODEL)


def error(response: httpx.Response) -> str:
    """The message of an error answer, whose shape is checked on the way."""
    answer = response.json()
    assert set(answer) == {"error"}
    assert isinstance(answer["error"], str)
    assert answer["error"]
    return answer["error"]


def length(vector: Any) -> float:
    return math.sqrt(sum(number * number for number in vector))


def context_length(target: Target) -> int:
    facts = target.client.show(target.model).modelinfo or {}
    found = facts[f"{facts['general.architecture']}.context_length"]
    assert isinstance(found, int)
    return found


# --- what is there ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_root_says_that_it_runs(target: Target, method: str) -> None:
    response = target.http.request(method, "/")
    assert response.status_code == 200
    assert response.text == ("Ollama is running" if method == "GET" else "")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_version_is_a_number(target: Target, method: str) -> None:
    response = target.http.request(method, "/api/version")
    assert response.status_code == 200
    if method == "GET":
        assert re.match(r"\d+\.\d+", response.json()["version"])


def test_tags_lists_the_model_with_its_digest(target: Target) -> None:
    entries = target.http.get("/api/tags").json()["models"]
    [entry] = [
        entry for entry in entries if entry["model"].removesuffix(":latest") == target.model.removesuffix(":latest")
    ]
    assert entry["name"] == entry["model"]
    assert re.fullmatch(r"[0-9a-f]{64}", entry["digest"])
    assert entry["size"] > 1_000_000
    assert {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"} <= set(
        entry["details"]
    )
    [listed] = [model for model in target.client.list().models if model.model == entry["model"]]
    assert listed.digest == entry["digest"]
    assert listed.modified_at is not None
    assert listed.modified_at.tzinfo is not None


def test_show_gives_dimensions_context_and_capability(target: Target) -> None:
    shown = target.client.show(target.model)
    facts = shown.modelinfo or {}
    family = facts["general.architecture"]
    assert facts[f"{family}.embedding_length"] == len(target.client.embed(target.model, "x").embeddings[0])
    assert facts[f"{family}.context_length"] > 0
    assert "embedding" in (shown.capabilities or [])
    assert shown.details is not None
    assert shown.modified_at is not None


def test_show_takes_the_older_word_for_the_model(target: Target) -> None:
    response = target.http.post("/api/show", json={"name": target.model})
    assert response.status_code == 200
    assert response.json()["model_info"]


def test_a_model_without_a_tag_is_the_latest(target: Target) -> None:
    bare = target.model.removesuffix(":latest")
    if ":" in bare:
        pytest.skip(f"{target.model} has a tag of its own")
    named = [target.client.embed(name, "ablazione").embeddings for name in (bare, f"{bare}:latest")]
    assert named[0] == named[1]


# --- embed -----------------------------------------------------------------------------------------------------------


def test_embed_answers_one_unit_vector_per_text_in_order(target: Target) -> None:
    texts = ["ablazione transcatetere", "fiscal year of a job order", "ablazione transcatetere"]
    answer = target.client.embed(target.model, texts)
    assert answer.model == target.model
    assert len(answer.embeddings) == 3
    assert answer.embeddings[0] == pytest.approx(answer.embeddings[2], abs=1e-6)
    assert answer.embeddings[0] != pytest.approx(answer.embeddings[1], abs=1e-2)
    assert [length(vector) for vector in answer.embeddings] == pytest.approx([1, 1, 1], abs=1e-5)
    assert (answer.prompt_eval_count or 0) >= 6
    assert (answer.total_duration or 0) > 0
    assert answer.load_duration is not None
    assert answer.load_duration <= (answer.total_duration or 0)


def test_a_string_is_a_list_of_one(target: Target) -> None:
    alone = target.client.embed(target.model, "cardioversione").embeddings
    listed = target.client.embed(target.model, ["cardioversione"]).embeddings
    assert len(alone) == 1
    assert alone[0] == pytest.approx(listed[0], abs=1e-6)


@pytest.mark.parametrize("body", [{}, {"input": ""}, {"input": []}, {"input": None}])
def test_no_input_only_loads_the_model(target: Target, body: dict[str, Any]) -> None:
    response = target.embed(**body)
    assert response.status_code == 200
    assert response.json()["embeddings"] == []


def test_dimensions_cut_the_vector_and_bring_it_back_to_length_one(target: Target) -> None:
    [whole] = target.client.embed(target.model, "riammissione").embeddings
    [cut] = target.client.embed(target.model, "riammissione", dimensions=64).embeddings
    scale = length(whole[:64])
    assert list(cut) == pytest.approx([number / scale for number in whole[:64]], abs=1e-4)
    for ignored in (0, -1, len(whole), len(whole) + 1):
        [same] = target.client.embed(target.model, "riammissione", dimensions=ignored).embeddings
        assert same == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("keep_alive", [0, -1, 12.5, "5m", "1h30m", "0"])
def test_keep_alive_is_accepted(target: Target, keep_alive: float | str) -> None:
    assert target.embed(input="x", keep_alive=keep_alive).status_code == 200


def test_a_field_that_is_not_known_is_ignored(target: Target) -> None:
    assert target.embed(input="x", shift=True, color="red").status_code == 200


def test_a_long_text_is_cut_by_default(target: Target) -> None:
    text = "parola " * (2 * context_length(target))
    [vector] = target.client.embed(target.model, text).embeddings
    assert length(vector) == pytest.approx(1, abs=1e-5)


def test_a_long_text_is_refused_if_it_may_not_be_cut(target: Target) -> None:
    text = "parola " * (2 * context_length(target))
    with pytest.raises(ollama.ResponseError, match="context length") as caught:
        target.client.embed(target.model, ["corta", text], truncate=False)
    assert caught.value.status_code == 400


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["no-such-model-anywhere", "no-such-model-anywhere:1b"])
def test_a_model_that_is_not_there(target: Target, name: str) -> None:
    with pytest.raises(ollama.ResponseError) as embedding:
        target.client.embed(name, "x")
    assert embedding.value.status_code == 404
    assert embedding.value.error == f'model "{name}" not found, try pulling it first'
    with pytest.raises(ollama.ResponseError) as showing:
        target.client.show(name)
    assert showing.value.status_code == 404
    assert showing.value.error == f"model '{name}' not found"


def test_another_tag_is_another_model(target: Target) -> None:
    response = target.embed(model=f"{target.model.split(':')[0]}:no-such-tag", input="x")
    assert response.status_code == 404
    assert "not found" in error(response)


@pytest.mark.parametrize("value", [3, {"text": "x"}, True, [1], ["x", None], [["x"]]])
def test_an_input_that_is_neither_text_nor_texts(target: Target, value: Any) -> None:
    response = target.embed(input=value)
    assert response.status_code == 400
    assert error(response) == "invalid input type"


BROKEN = [b"{", b"[]", b"nonsense", b'"x"', b'{"model": 3}']


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/api/show", body) for body in BROKEN),
        *(("/api/embed", body) for body in BROKEN),
        ("/api/embed", b'{"model": "m", "input": NaN}'),
        ("/api/embed", b'{"model": "m", "input": "x", "truncate": "no"}'),
        ("/api/embed", b'{"model": "m", "input": "x", "dimensions": "64"}'),
        ("/api/embed", b'{"model": "m", "input": "x", "dimensions": 1.5}'),
        ("/api/embed", b'{"model": "m", "input": "x", "options": []}'),
        ("/api/embed", b'{"model": "m", "input": "x", "keep_alive": "soon"}'),
        ("/api/embed", b'{"model": "m", "input": "x", "keep_alive": {}}'),
    ],
)
def test_a_body_that_cannot_be_read(target: Target, path: str, body: bytes) -> None:
    response = target.http.post(path, content=body)
    assert response.status_code == 400
    assert error(response)


@pytest.mark.parametrize("path", ["/api/embed", "/api/show"])
def test_no_body(target: Target, path: str) -> None:
    response = target.http.post(path)
    assert response.status_code == 400
    assert error(response) == "missing request body"


def test_no_model(target: Target) -> None:
    shown = target.http.post("/api/show", json={})
    assert shown.status_code == 400
    assert error(shown) == "model is required"
    embedded = target.http.post("/api/embed", json={"input": "x"})
    assert embedded.status_code in (400, 404)  # releases differ
    assert error(embedded)


def test_a_wrong_method(target: Target) -> None:
    assert target.http.get("/api/embed").status_code == 405
    assert target.http.post("/api/tags").status_code == 405


def test_a_path_that_is_not_there(target: Target) -> None:
    assert target.http.get("/no/such/path").status_code == 404


def test_the_answer_is_json_that_says_so(target: Target) -> None:
    response = target.embed(input="x")
    assert response.headers["content-type"].startswith("application/json")
    answer = json.loads(response.content)
    assert {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"} == set(answer)
