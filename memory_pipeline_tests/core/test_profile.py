"""Which words of a card each branch of the search reads."""

from __future__ import annotations

import pytest

from memory_pipeline.core.errors import UnknownProfile
from memory_pipeline.core.profile import DEFAULT_PROFILE, PROFILES, profile_named, split_identifiers
from memory_pipeline_tests.core.builders import content, place

PROFILE = profile_named(DEFAULT_PROFILE)
CONTENT = content(
    subject="ablazione",
    detail="procedura con flag = TRUE",
    rationale="confermato",
    question_context="Quante nel 2024?",
    concepts=("aritmia", "ritmo"),
    dependencies=(place("cardio", "public", "factProcedure", "ablazioneFlag"),),
)


def test_the_dense_branch_reads_the_question_and_no_identifiers() -> None:
    expected = "ablazione: procedura con flag = TRUE\nconfermato\nQuante nel 2024?\naritmia, ritmo"
    assert PROFILE.dense_text(CONTENT) == expected


def test_the_lexical_branch_reads_the_subject_twice_identifiers_in_words_and_not_the_question() -> None:
    expected = (
        "ablazione\nablazione: procedura con flag = TRUE\nconfermato\naritmia ritmo\nfact Procedure ablazione Flag"
    )
    assert PROFILE.lexical_text(CONTENT) == expected


def test_empty_fields_leave_no_trace() -> None:
    bare = content(detail="")
    assert PROFILE.dense_text(bare) == "ablazione"
    assert PROFILE.lexical_text(bare) == "ablazione\nablazione"


@pytest.mark.parametrize(
    ("subject", "detail", "statement"),
    [
        ("ablazione", "Un'Ablazione per anno", "Un'Ablazione per anno"),
        ("ora", "si lavora in commessa", "ora: si lavora in commessa"),
        ("NYHA", "classe NYHA III", "classe NYHA III"),
        ("c++", "scritto in c++.", "scritto in c++."),
        ("(a", "senza", "(a: senza"),
    ],
)
def test_the_subject_is_left_out_only_where_the_detail_has_it_as_words(
    subject: str, detail: str, statement: str
) -> None:
    assert PROFILE.dense_text(content(subject=subject, detail=detail)) == statement


def test_neither_branch_reads_how_a_formula_looks() -> None:
    formula = content(
        subject="Indice",
        detail=r"IR = \frac{\text{ricoveri} \times 100}{\sum \log_{10}(\textit{giorni})}, \textile C:\frac2",
    )
    written = r"IR =  { {ricoveri}   100}{\sum \log_{10}( {giorni})}, \textile C: 2"
    assert PROFILE.dense_text(formula) == f"Indice: {written}"
    assert PROFILE.lexical_text(formula) == f"Indice\nIndice: {written}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("codicePaziente", "codice Paziente"),
        ("cod_paz", "cod_paz"),
        ("nyha2Classe", "nyha2 Classe"),
        ("TOTALE", "TOTALE"),
    ],
)
def test_camel_case_is_split_alike_in_cards_and_questions(name: str, words: str) -> None:
    assert split_identifiers(name) == words
    assert PROFILE.lexical_query(name) == words


def test_only_a_profile_that_wants_it_puts_an_instruction_before_questions() -> None:
    assert PROFILE.dense_query("Quante?") == "Quante?"
    qwen = profile_named("qwen3")
    assert qwen.dense_query("Quante?").endswith("\nQuery:Quante?")
    assert qwen.dense_text(CONTENT) == PROFILE.dense_text(CONTENT)


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownProfile) as refused:
        profile_named("ada-002")
    assert all(name in refused.value.hint for name in PROFILES)
