"""Nearness of words, and the numbers that two nearly equal statements differ in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.similarity import NEAR, Apart, are_near, numbers_apart, overlap, statement_of
from memory_pipeline_tests.core.builders import content

NONE = Apart((), ())


def said(detail: str, subject: str = "follow-up") -> tuple[str, str]:
    return subject, detail


def compare(one: tuple[str, str], other: tuple[str, str]) -> tuple[float, Apart]:
    here, there = (statement_of(content(subject=subject, detail=detail)) for subject, detail in (one, other))
    return overlap(here, there), numbers_apart(here, there)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("osservazione di 6 anni", "osservazione di 5 anni", (("6 anni",), ("5 anni",))),
        ("kept for 6 years", "kept for 5 years", (("6 years",), ("5 years",))),
        ("kept for 6 years", "kept for 6 months", (("6 years",), ("6 months",))),
        ("classe NYHA III o IV", "classe NYHA II o IV", (("NYHA III",), ("NYHA II",))),
        ("frazione < 35%", "frazione < 40%", (("35%",), ("40%",))),
        ("frazione < 35", "frazione < 35%", (("35",), ("35%",))),
        ("codice I48.0", "codice I48.1", (("codice I48.0",), ("codice I48.1",))),
        ("dal 2024-01-01", "dal 2023-01-01", (("dal 2024-01-01",), ("dal 2023-01-01",))),
        ("soglia 1,5", "soglia 1,6", (("soglia 1,5",), ("soglia 1,6",))),
        ("entro 30 giorni", "entro il mese", (("30 giorni",), ())),
        ("da 1 a 2 dosi", "da 2 a 1 dosi", ((), ())),
        ("una di 3 e una di 3", "una di 3", (("di 3",), ())),
    ],
)
def test_numbers_that_differ_are_pointed_out_as_they_are_read(
    one: str, other: str, apart: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert compare(said(one), said(other))[1] == apart


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("entro 30 gg", "entro 30 giorni"),
        ("30 giorni dalla dimissione", "dalla dimissione, 30 giorni"),
        ("diabete di tipo 2 in terapia", "diabete di tipo 2 nei pazienti"),
        ("10\uff05 dei casi", "10% dei casi"),
        ("un anno", "due anni"),
    ],
)
def test_equal_numbers_are_not_pointed_out(one: str, other: str) -> None:
    assert compare(said(one), said(other))[1] == NONE


def test_statements_that_differ_in_numbers_alone_are_as_near_as_can_be() -> None:
    assert compare(said("osservazione di 6 anni"), said("osservazione di 5 anni"))[0] == 1.0


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        (said("nuovo ricovero entro 30 giorni"), said("nuovo ricovero entro 90 giorni", "riammissione"), True),
        (said("primo ricovero"), said("tutt'altra definizione", "FOLLOW-UP."), True),
        (said("attività del reparto", "attività"), said("attivita\u0300  del reparto", "attivita\u0300 "), True),
        (said("θεραπεία με φάρμακο 5 mg", "θεραπεία"), said("θεραπεία με φάρμακο 6 mg", "αγωγή"), True),
        (said("decesso del paziente", "mortalità"), said("chiave della commessa", "commessa"), False),
        (said("", "a"), said("", "b"), False),
    ],
)
def test_near_is_what_shares_its_words_or_its_subject(one: tuple[str, str], other: tuple[str, str], near: bool) -> None:
    here, there = (statement_of(content(subject=subject, detail=detail)) for subject, detail in (one, other))
    assert are_near(here, there) is near
    assert are_near(there, here) is near
    assert (overlap(here, there) >= NEAR or here.subject == there.subject) is near


@given(st.text(), st.text())
def test_comparing_has_two_equal_sides_and_takes_any_text(one: str, other: str) -> None:
    here, there = statement_of(content(detail=one)), statement_of(content(detail=other))
    assert 0.0 <= overlap(here, there) == overlap(there, here) <= 1.0
    assert numbers_apart(here, there) == tuple(reversed(numbers_apart(there, here)))
    assert numbers_apart(here, here) == NONE
