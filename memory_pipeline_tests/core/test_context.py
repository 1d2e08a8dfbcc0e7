"""The place of a search and its filters, which can only narrow."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.context import FIXED_BY_RUNTIME, SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadDependency, BadInput, BadText, FilterNotAllowed
from memory_pipeline_tests.core.builders import card, place
from memory_pipeline_tests.nasty import UNSTORABLE_TEXTS

RUNTIME = place("cardio", "public")


def filters(**fields: Any) -> SearchFilters:
    return SearchFilters.parse(fields)


# --- reading filters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", sorted(FIXED_BY_RUNTIME))
def test_a_filter_on_what_the_runtime_fixes_is_refused_by_name(fixed: str) -> None:
    with pytest.raises(FilterNotAllowed, match=f"^{fixed} cannot be filtered"):
        filters(**{fixed: "cardio", "table": "t"})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tables": ["t"]}, "filter tables"),
        ({"Database": "x"}, "filter Database"),
        ({"table": 7}, "filter table"),
        ({"scope": "per anno"}, "filter scope: a list is wanted"),
        ({"concepts": [1]}, "filter concepts.0"),
        ({"kinds": ["memories"]}, "filter kinds.0"),
        ({"kinds": []}, "at least one kind"),
        ({"concepts": [" "]}, "blank"),
        ({"concepts": ["ablazione", "…"]}, "blank"),
        ({"scope": [""]}, "blank"),
        ({"table": ""}, "blank"),
        ({"table": "t", "column": "\t"}, "blank"),
    ],
)
def test_a_filter_that_cannot_be_applied_is_refused_never_dropped(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        filters(**fields)


@pytest.mark.parametrize("fields", [[], "table", None, 7])
def test_filters_are_an_object(fields: object) -> None:
    with pytest.raises(BadInput, match="filter filters"):
        SearchFilters.parse(fields)


@pytest.mark.parametrize("name", ["table", "scope", "concepts"])
def test_a_filter_that_cannot_be_stored_is_refused(name: str) -> None:
    text = UNSTORABLE_TEXTS["NUL"]
    with pytest.raises(BadText):
        filters(**{name: text if name == "table" else [text]})


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"kind": "exemplar"}, (CardKind.EXEMPLAR,)),
        ({"kinds": ["exemplar", "memory"]}, (CardKind.EXEMPLAR, CardKind.MEMORY)),
        ({}, (CardKind.MEMORY,)),
    ],
)
def test_a_kind_is_asked_for_by_name(fields: dict[str, Any], kinds: tuple[CardKind, ...]) -> None:
    assert filters(**fields).kinds == kinds


def test_one_kind_and_several_are_one_too_many() -> None:
    with pytest.raises(BadInput, match="filter kind"):
        filters(kind="exemplar", kinds=["memory"])


# --- joining runtime and filters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "fields", "default_schema", "path"),
    [
        (RUNTIME, {}, None, "cardio/public"),
        (RUNTIME, {"table": "T"}, None, "cardio/public/t"),
        (RUNTIME, {"table": "t", "column": "C"}, None, "cardio/public/t/c"),
        (RUNTIME, {"table": "dwh/t"}, None, "cardio/public/dwh%2Ft"),
        (place("cardio"), {}, "public", "cardio"),
        (place("cardio"), {"table": "t"}, None, "cardio//t"),
        (place("cardio"), {"table": "t"}, "public", "cardio/public/t"),
        (RUNTIME, {"table": "t"}, "staging", "cardio/public/t"),
    ],
)
def test_a_filter_extends_the_path_of_the_runtime(
    runtime: Dependency, fields: dict[str, Any], default_schema: str | None, path: str
) -> None:
    assert search_context(runtime, filters(**fields), default_schema=default_schema).paths == (path,)


def test_a_column_without_its_table_is_refused() -> None:
    with pytest.raises(BadDependency):
        search_context(RUNTIME, filters(column="data"))


@pytest.mark.parametrize("fields", [{"table": "t"}, {"column": "c"}, {"table": "t", "column": "c"}])
def test_a_table_is_refused_where_no_place_is_fixed(fields: dict[str, str]) -> None:
    with pytest.raises(FilterNotAllowed):
        search_context(None, filters(**fields))


def test_a_place_that_names_a_table_is_narrowed_to_its_columns_and_never_left() -> None:
    table = place("cardio", "public", "t")
    assert search_context(table, filters()).paths == ("cardio/public/t",)
    assert search_context(table, filters(table="T", column="c")).paths == ("cardio/public/t/c",)
    assert search_context(table, filters(column="c")).paths == ("cardio/public/t/c",)
    with pytest.raises(FilterNotAllowed):
        search_context(table, filters(table="other"))


def test_without_a_runtime_the_whole_workspace_is_searched_for_memories() -> None:
    context = search_context(None, SearchFilters())
    assert (context.paths, context.scope, context.concepts) == ((), None, ())
    assert context.kinds == (CardKind.MEMORY,)


# --- what a context allows ---------------------------------------------------------------------------------------

HERE = place("cardio", "public", "fact_procedure")
CARD = card(dependencies=(HERE,), scope=("Per anno",), concepts=("Ablazione", "aritmia"))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"table": "fact_procedure"},
        {"table": "fact_procedure", "column": "data"},
        {"scope": ["per anno."]},
        {"concepts": ["ABLAZIONE"]},
        {"concepts": ["cardioversione", "Aritmia"]},
        {"kinds": ["memory", "exemplar"]},
        {"table": "fact_procedure", "scope": ["per anno"], "concepts": ["aritmia"]},
    ],
)
def test_a_card_that_passes_every_filter_is_allowed(fields: dict[str, Any]) -> None:
    assert search_context(RUNTIME, filters(**fields)).allows(CARD)


@pytest.mark.parametrize(
    "fields",
    [
        {"table": "dim_paziente"},
        {"scope": ["per mese"]},
        {"scope": ["per anno", "per mese"]},
        {"concepts": ["cardioversione"]},
        {"kinds": ["exemplar", "evidence"]},
        {"table": "fact_procedure", "scope": ["per mese"], "concepts": ["aritmia"]},
    ],
)
def test_a_card_that_fails_one_filter_is_not_allowed(fields: dict[str, Any]) -> None:
    assert not search_context(RUNTIME, filters(**fields)).allows(CARD)


def test_a_card_without_scope_serves_every_scope_and_one_without_concepts_no_concept() -> None:
    bare = card()
    assert search_context(RUNTIME, filters(scope=["per anno"])).allows(bare)
    assert not search_context(RUNTIME, filters(concepts=["ablazione"])).allows(bare)


def test_another_place_is_not_allowed_whatever_the_filters() -> None:
    assert not search_context(place("dwh", "public"), SearchFilters()).allows(CARD)
    assert search_context(None, SearchFilters()).allows(CARD)


@pytest.mark.parametrize("kind", [CardKind.EXEMPLAR, CardKind.EVIDENCE])
def test_other_kinds_are_allowed_only_by_name(kind: CardKind) -> None:
    other = card(kind=kind, type="solved_question")
    assert not search_context(RUNTIME, SearchFilters()).allows(other)
    assert search_context(RUNTIME, filters(kinds=[kind])).allows(other)


# --- how much of the place asked for a card names ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("dependencies", "segments"),
    [
        ((), 0),
        ((place("dwh"),), 0),
        ((place("cardio"),), 1),
        ((place("cardio", "public"),), 2),
        ((place("cardio", "public", "fact"),), 3),
        ((place("cardio", "public", "fact", "anno"),), 4),
        ((place("cardio", "public", "fact", "mese"),), 3),
        ((place("cardio"), place("cardio", "public", "fact")), 3),
        ((place("cardio", "archive", "fact"), place("dwh", "public", "fact")), 1),
    ],
)
def test_a_card_that_names_more_of_the_place_is_more_specific(
    dependencies: tuple[Dependency, ...], segments: int
) -> None:
    context = search_context(RUNTIME, filters(table="fact", column="anno"))
    assert context.specificity(card(dependencies=dependencies)) == segments
    assert search_context(None, filters()).specificity(card(dependencies=dependencies)) == 0
