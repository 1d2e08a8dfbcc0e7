"""Cards: their identity, their clean form, and what never becomes one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_pipeline.core.cards import CardKind, Link, MemoryRecord, card_id, card_number, clean_content, scope_key
from memory_pipeline.core.errors import BadReference, NotReusable
from memory_pipeline.core.ledger import REUSABLE_TYPES, EntryType
from memory_pipeline_tests.core.builders import card, content, place, requires

# --- what may be a memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [*sorted(set(EntryType) - REUSABLE_TYPES), "", "Concept_Clarified", "exemplar"])
def test_a_memory_of_a_type_that_is_not_reusable_cannot_even_be_read(type_: str) -> None:
    with pytest.raises(NotReusable):
        card(type=type_)


@pytest.mark.parametrize("kind", [CardKind.EXEMPLAR, CardKind.EVIDENCE])
def test_other_kinds_have_types_of_their_own(kind: CardKind) -> None:
    assert card(kind=kind, type="solved_question").kind is kind


@pytest.mark.parametrize("revision", [0, -1])
def test_revisions_count_from_one(revision: int) -> None:
    with pytest.raises(ValidationError):
        card(revision=revision)


# --- links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["seq:1", "seq:999999999999999999", "mem-0001", "mem-10000"])
def test_a_link_points_to_a_decision_or_to_a_card(target: str) -> None:
    assert requires(target).target == target


@pytest.mark.parametrize(
    "target",
    ["", "5", "seq:0", "seq:05", "seq:1000000000000000000", "seq:5 ", "mem-1", "MEM-0001", "phase:F1", "seq:5\n", "ⅷ"],
)
def test_a_link_to_anything_else_is_refused_by_name(target: str) -> None:
    with pytest.raises(BadReference):
        requires(target)


def test_a_link_of_an_unknown_relation_is_refused() -> None:
    with pytest.raises(ValidationError):
        Link.model_validate({"relation": "implies", "target": "seq:1"})


# --- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "written"), [(1, "mem-0001"), (9999, "mem-9999"), (10_000, "mem-10000"), (10**17, f"mem-{10**17}")]
)
def test_an_id_has_at_least_four_digits_and_gives_its_number_back(number: int, written: str) -> None:
    assert card_id(number) == written
    assert card_number(written) == number


# --- identity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        ((), ""),
        (("", " ", "…"), ""),
        (("Per Anno",), '["per anno"]'),
        (("b", "a"), '["a","b"]'),
        (("a", "A", " a. "), '["a"]'),
        (('a","b',), '["a\\",\\"b"]'),
        (("attivita\u0300",), '["attività"]'),
    ],
)
def test_a_scope_is_one_keyword_whatever_its_order_and_spelling(scope: tuple[str, ...], key: str) -> None:
    assert scope_key(scope) == key


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_two_scopes_share_a_key_only_if_their_folded_members_are_the_same(one: list[str], other: list[str]) -> None:
    def members(scope: list[str]) -> set[str]:
        return {scope_key((member,)) for member in scope} - {""}

    assert (scope_key(tuple(one)) == scope_key(tuple(other))) is (members(one) == members(other))


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"subject": "ABLAZIONE."}, True),
        ({"rationale": "altro", "question_context": "altra", "concepts": ("x",), "links": (requires("seq:1"),)}, True),
        ({"detail": "un'altra regola"}, False),
        ({"scope": ("per anno",)}, False),
        ({"dependencies": (place("cardio"),)}, False),
    ],
)
def test_equivalence_is_equal_text_places_and_scope(changed: dict[str, Any], same: bool) -> None:
    assert content(**changed).equivalent_to(content()) is same


def test_the_order_of_places_does_not_count() -> None:
    there, here = place("a", "s", "t"), place("b")
    assert content(dependencies=(there, here)).equivalent_to(content(dependencies=(here, there)))


# --- the clean form ----------------------------------------------------------------------------------------------


def test_clean_content_is_stripped_resolved_and_free_of_repetitions() -> None:
    clean = clean_content(
        content(
            subject=" ablazione\n",
            detail="\tregola ",
            rationale=" perché ",
            scope=("Per anno", "per anno.", " "),
            concepts=(" Ablazione ", "ablazione", "aritmia", ""),
            dependencies=(place("cardio", None, "t"), place("cardio", "public", "T"), place("altro")),
            links=(requires("seq:2"), requires("seq:1"), requires("seq:2")),
        ),
        "public",
    )
    assert (clean.subject, clean.detail, clean.rationale) == ("ablazione", "regola", "perché")
    assert clean.scope == ("Per anno",)
    assert clean.concepts == ("Ablazione", "aritmia")
    assert clean.dependencies == (place("altro"), place("cardio", "public", "t"))
    assert clean.links == (requires("seq:2"), requires("seq:1"))


def test_cleaning_twice_is_cleaning_once() -> None:
    once = clean_content(content(scope=(" A ", "a"), dependencies=(place("cardio", None, "t"),)), "public")
    assert clean_content(once, "public") == once


@pytest.mark.parametrize("schema", [None, "public"])
def test_cleaning_does_not_change_the_identity_of_the_text(schema: str | None) -> None:
    assert clean_content(content(subject="  Ablazione "), schema).fingerprint == content().fingerprint


def test_a_record_is_its_content() -> None:
    assert isinstance(card(), MemoryRecord)
    assert card().equivalent_to(content())
