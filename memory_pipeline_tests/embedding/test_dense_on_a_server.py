"""The embedder on a real server: what the pipeline relies on, whichever model serves it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from memory_pipeline.core.errors import ModelMissing
from memory_pipeline.embedding.dense import DenseEmbedder, Embedded, ModelInfo

pytestmark = pytest.mark.integration

MODEL = os.environ.get("MEMORY_EMBEDDING_MODEL", "universal-sentence-encoder")
ABLATION = "L'ablazione è una procedura con ablazione_transcatetere = TRUE, contata una volta per paziente e per anno."
FILLER = "La commessa è aperta dal reparto amministrativo e resta valida per l'esercizio in corso. "


@pytest.fixture(scope="module")
def embedder(ollama: str) -> Iterator[DenseEmbedder]:
    with DenseEmbedder(ollama, timeout=120) as made:
        yield made


@pytest.fixture(scope="module")
def info(embedder: DenseEmbedder) -> ModelInfo:
    return embedder.describe(MODEL)


def embedded(embedder: DenseEmbedder, info: ModelInfo, *texts: str) -> list[Embedded]:
    outcomes = embedder.embed(info.name, texts, dimensions=info.dimensions)
    assert all(isinstance(outcome, Embedded) for outcome in outcomes)
    return outcomes


def test_the_model_is_found_without_its_tag(embedder: DenseEmbedder, info: ModelInfo) -> None:
    assert info.name.startswith(MODEL)
    assert ":" in info.name
    assert embedder.describe(info.name) == info
    assert info.digest
    assert info.context_length is None or info.context_length > 64


def test_vectors_have_the_length_that_the_model_states_and_length_one(embedder: DenseEmbedder, info: ModelInfo) -> None:
    for outcome in embedded(embedder, info, ABLATION, FILLER, "病人", "30"):
        assert outcome.vector.shape == (info.dimensions,)
        assert outcome.vector.dtype == np.float32
        assert np.linalg.norm(outcome.vector) == pytest.approx(1.0, abs=1e-5)
        assert not outcome.pooled


def test_a_question_is_nearest_to_what_answers_it_in_either_language(embedder: DenseEmbedder, info: ModelInfo) -> None:
    texts = [ABLATION, FILLER, "Un ricovero è ripetuto se avviene entro 30 giorni dalla dimissione precedente."]
    cards = np.stack([outcome.vector for outcome in embedded(embedder, info, *texts)])
    for question, card in (
        ("Quante ablazioni per paziente ogni anno?", 0),
        ("How many ablation procedures per patient and year?", 0),
        ("Quanti ricoveri ripetuti entro 30 giorni?", 2),
        ("How many readmissions within 30 days of discharge?", 2),
    ):
        vector = embedder.embed_query(info.name, question, dimensions=info.dimensions)
        assert int(np.argmax(cards @ vector)) == card, question


def test_a_fact_at_the_end_of_a_long_text_is_part_of_its_vector(embedder: DenseEmbedder, info: ModelInfo) -> None:
    context = info.context_length or 512
    filler = FILLER * (context // 12)
    with_fact, without = embedded(embedder, info, filler + ABLATION, filler)
    assert with_fact.pooled
    assert without.pooled
    question = embedder.embed_query(info.name, "ablazione transcatetere", dimensions=info.dimensions)
    assert question @ with_fact.vector > question @ without.vector


def test_a_long_text_among_others_has_the_vector_that_it_has_alone(embedder: DenseEmbedder, info: ModelInfo) -> None:
    long = (FILLER + ABLATION) * ((info.context_length or 512) // 12)
    first, among, last = embedded(embedder, info, ABLATION, long, FILLER)
    alone = embedded(embedder, info, long)[0]
    assert among.pooled
    np.testing.assert_allclose(among.vector, alone.vector, atol=1e-3)
    assert not first.pooled
    assert not last.pooled


def test_hostile_texts_are_embedded_or_refused_one_by_one(embedder: DenseEmbedder, info: ModelInfo) -> None:
    texts = ["", "\x00", "😀" * 50, "a" * 20_000, "\u202eabc", "'; DROP TABLE cards; --", "\ud800", "ok"]
    outcomes = embedder.embed(info.name, texts, dimensions=info.dimensions)
    assert len(outcomes) == len(texts)
    assert isinstance(outcomes[-1], Embedded)
    refused = [position for position, outcome in enumerate(outcomes) if not isinstance(outcome, Embedded)]
    assert {0, 1, 6} <= set(refused) <= {0, 1, 3, 6}


def test_a_model_that_is_not_there_is_named(embedder: DenseEmbedder, info: ModelInfo) -> None:
    for call in (
        lambda: embedder.describe("no-such-model"),
        lambda: embedder.embed("no-such-model", ["text"], dimensions=None),
        lambda: embedder.embed_query("no-such-model", "text", dimensions=None),
    ):
        with pytest.raises(ModelMissing, match="no model 'no-such-model'") as caught:
            call()
        assert info.name in caught.value.message
