"""The lexical encoder: what is the same word, what is no word at all, and what must never change unseen."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.errors import BadText, UnknownLanguage
from memory_pipeline.core.profile import DEFAULT_PROFILE, PROFILES
from memory_pipeline.embedding.lexical import ANALYSER, LexicalEncoder, SparseVector, analyser_of

PROFILE = PROFILES[DEFAULT_PROFILE]
IT = LexicalEncoder("it", PROFILE)
EN = LexicalEncoder("en", PROFILE)


GOLDEN_IT = (284229878, 774397860, 1121703155, 1556019768, 2043100318)
GOLDEN_EN = (520205939, 749129358, 1248004021, 1745114270, 1796268431, 1881538586, 1955747086)


def terms(encoder: LexicalEncoder, text: str) -> set[int]:
    return set(encoder.query(text).indices)


@pytest.mark.parametrize("language", ["", "de", "IT", "italian", "klingon"])
def test_an_unknown_language_fails_at_construction(language: str) -> None:
    with pytest.raises(UnknownLanguage, match="use one of en, it"):
        LexicalEncoder(language, PROFILE)


@pytest.mark.parametrize(
    ("encoder", "one", "other"),
    [
        (IT, "pazienti ricoverati", "paziente ricoverato"),
        (IT, "l'ablazione", "ablazioni"),
        (IT, "dell’anno", "anno"),
        (IT, "ATTIVITÀ", "attività"),
        (IT, "attivita'", "attività"),
        (IT, unicodedata.normalize("NFD", "attività"), unicodedata.normalize("NFC", "attività")),
        (IT, "ﬁbrillazione", "fibrillazione"),
        (EN, "patients readmitted", "patient readmit"),
        (EN, "café", "cafe"),
        (EN, "cod_paz", "cod paz"),
        (EN, "public.fact_procedure", "fact procedure public"),
        (EN, "30-day", "30 day"),
        (EN, "12.5", "12,5"),
    ],
)
def test_two_forms_of_one_word(encoder: LexicalEncoder, one: str, other: str) -> None:
    assert terms(encoder, one) == terms(encoder, other) != set()


@pytest.mark.parametrize(
    ("encoder", "one", "other"),
    [
        (EN, "pazienti ricoverati", "paziente ricoverato"),
        (IT, "5 anni", "6 anni"),
        (IT, "abc123", "abc 123"),
        (IT, "codPaz", "cod_paz"),
        (IT, "ασθενής", "γιατρός"),
        (IT, "病人", "医生"),
    ],
)
def test_two_words(encoder: LexicalEncoder, one: str, other: str) -> None:
    assert terms(encoder, one) != terms(encoder, other)


@pytest.mark.parametrize(
    ("encoder", "text"),
    [
        (IT, ""),
        (IT, " \n\t"),
        (IT, "…!?"),
        (IT, "😀"),
        (IT, "il la lo gli dell' sull' perché più è e' sarà farò stessimo avessero"),
        (IT, "perche piu sara"),
        (EN, "the of and it's shouldn't themselves"),
    ],
)
def test_a_text_without_words_has_an_empty_vector(encoder: LexicalEncoder, text: str) -> None:
    for vector in (encoder.document(text), encoder.query(text)):
        assert vector == SparseVector(indices=(), values=())
        assert not vector


def test_stop_words_are_those_of_the_language() -> None:
    assert not IT.query("della")
    assert EN.query("della")
    assert not EN.query("ourselves")
    assert IT.query("ourselves")


def test_a_card_weighs_terms_by_frequency_and_length() -> None:
    once, twice = IT.document("ablazione"), IT.document("ablazione ablazione")
    padded = IT.document("ablazione " + " ".join(f"parola{number}" for number in range(60)))
    weight = dict(zip(padded.indices, padded.values, strict=True))[once.indices[0]]
    assert weight < once.values[0] < twice.values[0] < 2 * once.values[0]


def test_a_question_weighs_a_word_by_its_saturated_count_whatever_its_length() -> None:
    assert IT.query("ablazione").values == (1.0,)
    assert IT.query("ablazione ablazione").values == pytest.approx((2 * (1 + PROFILE.bm25_k1) / (2 + PROFILE.bm25_k1),))
    assert set(IT.query(" ".join(f"parola{number}" for number in range(60))).values) == {1.0}


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=200))
def test_indices_rise_and_every_weight_is_positive(text: str) -> None:
    for vector in (IT.document(text), IT.query(text), EN.document(text)):
        assert list(vector.indices) == sorted(set(vector.indices))
        assert len(vector.indices) == len(vector.values)
        assert all(value > 0 for value in vector.values)


@pytest.mark.parametrize("text", ["a\x00b", "half \udfff pair"])
def test_a_text_that_no_store_could_hold_is_refused(text: str) -> None:
    with pytest.raises(BadText):
        IT.document(text)
    with pytest.raises(BadText):
        IT.query(text)


def test_threads_share_one_encoder() -> None:
    texts = [f"ablazione numero {number} del paziente" for number in range(50)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(IT.document, texts)) == [IT.document(text) for text in texts]


@pytest.mark.parametrize("changed", ["bm25_k1", "bm25_b", "bm25_average_length"])
def test_the_analyser_is_named_with_its_numbers(changed: str) -> None:
    other = PROFILE.model_copy(update={changed: 0.9})
    assert analyser_of("it", other) != analyser_of("it", PROFILE) == IT.analyser
    assert IT.analyser.startswith(f"{ANALYSER};")
    assert LexicalEncoder("it", other).analyser == analyser_of("it", other)


def test_golden_vectors() -> None:
    """Where these differ, cards already indexed cannot be compared: raise the version in `ANALYSER`."""
    assert ANALYSER == "qdrant-bm25:1"
    assert IT.query("Attività dell'ablazione: cod_paz 30giorni").indices == GOLDEN_IT
    assert EN.query("Patients' readmission within 30 days, fact_stay").indices == GOLDEN_EN
