"""What the index must hold for a card, and the hash that shows whether it does."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.cards import CardKind, CardStatus
from memory_pipeline.core.errors import NotReusable
from memory_pipeline.core.projection import is_projected, point_id, project
from memory_pipeline_tests.core.builders import FORMAT, MOMENT, card, content, place, requires

HERE = place("cardio", "public", "fact_procedure", "data")


# --- the hash ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"subject": "cardioversione"},
        {"detail": "un'altra regola"},
        {"rationale": "un altro motivo"},
        {"question_context": "Un'altra domanda?"},
        {"concepts": ("aritmia",)},
        {"scope": ("per anno",)},
        {"dependencies": (HERE,)},
        {"kind": CardKind.EXEMPLAR, "type": "solved_question"},
    ],
)
def test_the_hash_changes_with_each_field_that_the_point_holds(changed: dict[str, Any]) -> None:
    assert project(card(**changed), FORMAT).sha256 != project(card(), FORMAT).sha256


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"profile": "qwen3"},
        {"profile_version": 2},
        {"model": "qwen3-embedding:0.6b"},
        {"model_digest": "d2"},
        {"dimensions": 1024},
        {"analyser": "qdrant-edge-bm25-2"},
        {"language": "english"},
    ],
)
def test_the_hash_changes_with_each_part_of_the_format(changed: dict[str, Any]) -> None:
    assert project(card(), FORMAT.model_copy(update=changed)).sha256 != project(card(), FORMAT).sha256


@pytest.mark.parametrize(
    "changed",
    [
        {"revision": 7},
        {"links": (requires("mem-0002"),)},
        {"updated_at": MOMENT.replace(year=2027), "updated_by": "rossi"},
        {"workspace": "altro"},
        {"id": "mem-0002"},
    ],
)
def test_the_hash_does_not_change_with_what_the_point_does_not_hold(changed: dict[str, Any]) -> None:
    assert project(card(**changed), FORMAT).sha256 == project(card(), FORMAT).sha256


def test_order_and_spelling_of_filters_do_not_change_the_hash() -> None:
    one = card(scope=("a", "B"), concepts=("aritmia", "ritmo"), dependencies=(HERE, place("dwh")))
    other = one.model_copy(update={"scope": ("b", "A"), "dependencies": (place("DWH"), HERE)})
    assert project(one, FORMAT).filters == project(other, FORMAT).filters


def test_each_text_has_a_hash_of_its_own_that_the_other_fields_leave_alone() -> None:
    one, other = project(card(question_context="Quante?"), FORMAT), project(card(question_context="Quali?"), FORMAT)
    assert one.dense_sha256 != other.dense_sha256
    assert one.lexical_sha256 == other.lexical_sha256
    moved = project(card(question_context="Quante?", scope=("per anno",)), FORMAT)
    assert (moved.dense_sha256, moved.lexical_sha256) == (one.dense_sha256, one.lexical_sha256)


# --- the payload -------------------------------------------------------------------------------------------------


def test_the_payload_of_a_card_with_places() -> None:
    projected = project(
        card(dependencies=(HERE, place("cardio", None, "t")), scope=("Per anno",), concepts=("Aritmia", "aritmia.")),
        FORMAT,
    )
    assert projected.payload() == {
        "ref": "mem-0001",
        "revision": 1,
        "projection_sha256": projected.sha256,
        "kind": "memory",
        "concepts": ["aritmia"],
        "scope": '["per anno"]',
        "dep_paths": ["cardio//t", "cardio/public/fact_procedure/data"],
        "dep_prefixes": [
            "cardio",
            "cardio//t",
            "cardio/public",
            "cardio/public/fact_procedure",
            "cardio/public/fact_procedure/data",
        ],
    }


def test_the_payload_of_a_card_without_places_says_so_with_a_keyword() -> None:
    projected = project(card(), FORMAT)
    assert projected.payload() == {
        "ref": "mem-0001",
        "revision": 1,
        "projection_sha256": projected.sha256,
        "kind": "memory",
        "concepts": [],
        "scope": "",
        "dep_none": "yes",
        "dep_paths": [],
        "dep_prefixes": [],
    }


# --- points ------------------------------------------------------------------------------------------------------


def test_a_point_belongs_to_the_card_whatever_its_kind_and_revision() -> None:
    memory, exemplar = card(), card(kind=CardKind.EXEMPLAR, type="solved_question", revision=3)
    assert project(memory, FORMAT).point_id == project(exemplar, FORMAT).point_id == point_id("mem-0001")
    assert point_id("mem-0001") != point_id("mem-0002")


def test_a_point_keeps_its_id_between_releases() -> None:
    assert str(point_id("mem-0001")) == "88bcd82f-774f-564e-9963-96d210ec4bdb"


@pytest.mark.parametrize("status", CardStatus)
def test_only_an_active_card_has_a_point(status: CardStatus) -> None:
    assert is_projected(card(status=status)) is (status is CardStatus.ACTIVE)


def test_a_memory_that_is_not_reusable_is_never_projected() -> None:
    forged = card().model_copy(update={"type": "table_promoted"})
    with pytest.raises(NotReusable):
        project(forged, FORMAT)


def test_texts_are_those_of_the_profile() -> None:
    projected = project(card(), FORMAT)
    assert projected.dense_text == f"{content().subject}: {content().detail}"
