"""What the index finds in a context is what the domain allows there: the same cases for a server and for the rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from memory_pipeline.core.cards import CardKind, MemoryRecord
from memory_pipeline.core.context import SearchContext, SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.projection import project
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline_tests.index.samples import DIMENSIONS, EAST, FORMAT, PROFILE, card, words

pytestmark = pytest.mark.integration

NAME = "test__agreement"
DEFAULT_SCHEMA = "public"
ODD = [
    "a/b",
    "a",
    "b",
    'le "mie" tabelle',
    "due parole",
    "MAIUSCOLE",
    "maiuscole",
    "età",
    "eta\u0300",
    "a.b",
    "100%",
    "%2F",
]


def place(*parts: str | None) -> Dependency:
    names = ("database", "schema", "table", "column")
    return Dependency(**{name: part for name, part in zip(names, parts, strict=False) if part is not None})


CARDS: dict[str, dict[str, Any]] = {
    "everywhere": {},
    "other database": {"dependencies": [place("dwh", "public", "orders")]},
    "database": {"dependencies": [place("sales")]},
    "schema": {"dependencies": [place("sales", "public")]},
    "other schema": {"dependencies": [place("sales", "archive")]},
    "table": {"dependencies": [place("sales", "public", "orders")]},
    "same table, other schema": {"dependencies": [place("sales", "archive", "orders")]},
    "table without schema": {"dependencies": [place("sales", None, "orders")]},
    "column": {"dependencies": [place("sales", "public", "orders", "total")]},
    "only two together": {"dependencies": [place("sales", "archive", "x"), place("dwh", "public", "orders")]},
    "one of two": {"dependencies": [place("dwh", "public", "x"), place("sales", "public", "orders")]},
    "dots": {"dependencies": [place("sales", "public.orders")]},
    "slash": {"dependencies": [place("sales/public", "orders")]},
    "quotes": {"dependencies": [place("sales", "public", '"orders"')]},
    "spaces": {"dependencies": [place("sales", "public", "my orders")]},
    "capitals": {"dependencies": [place("SALES", "Public", "ORDERS")]},
    "accents": {"dependencies": [place("sales", "public", "attivita\u0300")]},
    "scope": {"scope": ("Budget",)},
    "two scopes": {"scope": ("budget", "consuntivo")},
    "concepts": {"concepts": ("Margine", "ordine")},
    "scope and place": {"scope": ("budget",), "dependencies": [place("sales", "public")], "concepts": ("margine",)},
    "exemplar": {"kind": CardKind.EXEMPLAR, "type": "exemplar"},
    "evidence": {"kind": CardKind.EVIDENCE, "type": "evidence", "dependencies": [place("sales")]},
}

PLACED = {"everywhere", "scope", "two scopes", "concepts"}
"""Cards without a place, which serve all of them."""


@pytest.mark.parametrize(
    ("runtime", "filters", "found"),
    [
        pytest.param(
            place("sales", "public"),
            {"table": "orders"},
            {"database", "schema", "table", "column", "one of two", "capitals", "scope and place"},
            id="an ancestor serves its descendants, and a descendant its ancestor",
        ),
        pytest.param(
            place("sales", "public"),
            {"table": "orders", "column": "total"},
            {"database", "schema", "table", "column", "one of two", "capitals", "scope and place"},
            id="a column",
        ),
        pytest.param(
            place("sales", "archive"),
            {"table": "orders"},
            {"database", "other schema", "same table, other schema"},
            id="the same table in another schema",
        ),
        pytest.param(
            place("sales"),
            {},
            {
                *("database", "schema", "other schema", "table", "same table, other schema", "table without schema"),
                *("column", "only two together", "one of two", "dots", "quotes", "spaces", "capitals", "accents"),
                "scope and place",
            },
            id="only a database",
        ),
        pytest.param(
            place("sales"),
            {"table": "orders"},
            {"database", "schema", "table", "column", "one of two", "capitals", "scope and place"},
            id="a table without its schema is in the default one",
        ),
        pytest.param(place("dwh", "archive"), {"table": "orders"}, set(), id="never two dependencies together"),
        pytest.param(
            place("sales", "public"),
            {"table": "Attività"},
            {"database", "schema", "accents", "scope and place"},
            id="accents and case",
        ),
        pytest.param(place("sales/public"), {}, {"slash"}, id="a slash is part of a name"),
        pytest.param(place("sales", "public.orders"), {}, {"database", "dots"}, id="and so is a dot"),
        pytest.param(
            place("sales", "public"),
            {"table": '"orders"'},
            {"database", "schema", "quotes", "scope and place"},
            id="quotes",
        ),
        pytest.param(
            place("sales", "public"),
            {"table": "my orders"},
            {"database", "schema", "spaces", "scope and place"},
            id="spaces",
        ),
    ],
)
def test_a_place_is_the_same_on_the_server_and_in_the_domain(
    index: VectorIndex, agreed: dict[str, MemoryRecord], runtime: Dependency, filters: dict[str, Any], found: set[str]
) -> None:
    context = search_context(runtime, SearchFilters.parse(filters), default_schema=DEFAULT_SCHEMA)
    assert _found(index, agreed, context) == _allowed(agreed, context) == found | PLACED


@pytest.mark.parametrize(
    ("filters", "among"),
    [
        ({"scope": ["BUDGET"]}, lambda card: card.scope in ((), ("Budget",), ("budget",))),
        ({"scope": ["consuntivo", "budget"]}, lambda card: len(card.scope) != 1),
        ({"concepts": ["margine", "altro"]}, lambda card: bool(card.concepts)),
        ({"kind": "exemplar"}, lambda card: card.kind is CardKind.EXEMPLAR),
        ({"kinds": ["exemplar", "evidence"]}, lambda card: card.kind is not CardKind.MEMORY),
    ],
)
def test_a_filter_is_the_same_on_the_server_and_in_the_domain(
    index: VectorIndex, agreed: dict[str, MemoryRecord], filters: dict[str, Any], among: Any
) -> None:
    context = search_context(None, SearchFilters.parse(filters))
    expected = {name for name, card in agreed.items() if among(card) and card.kind in context.kinds}
    assert _found(index, agreed, context) == _allowed(agreed, context) == expected


def test_they_agree_on_any_context(index: VectorIndex, agreed: dict[str, MemoryRecord]) -> None:
    """Contexts and cards of odd names, drawn at random."""
    draw = random.Random(7)
    for _ in range(60):
        parts = [draw.choice([*ODD, "sales", "public", "orders"]) for _ in range(2)]
        filters = {
            name: value
            for name, value in {
                "table": draw.choice([*ODD, "orders"]),
                "scope": [draw.choice(["budget", "Consuntivo", "altro"])],
                "concepts": [draw.choice(["margine", "ORDINE", "niente"]), "x"],
                "kinds": draw.sample([kind.value for kind in CardKind], draw.randint(1, 3)),
            }.items()
            if draw.random() < 0.4
        }
        context = search_context(
            place(parts[0], draw.choice([None, parts[1]])), SearchFilters.parse(filters), default_schema=DEFAULT_SCHEMA
        )
        assert _found(index, agreed, context) == _allowed(agreed, context), context


def test_a_narrower_search_never_finds_more(index: VectorIndex, agreed: dict[str, MemoryRecord]) -> None:
    wide = search_context(place("sales", "public"), SearchFilters())
    for filters in ({"table": "orders"}, {"scope": ["budget"]}, {"concepts": ["margine"]}):
        narrow = search_context(place("sales", "public"), SearchFilters.parse(filters))
        assert _found(index, agreed, narrow) < _found(index, agreed, wide)


@pytest.fixture(scope="module")
def agreed(index: VectorIndex) -> Iterator[dict[str, MemoryRecord]]:
    """Every card of the cases, and as many of odd names, in one collection."""
    draw = random.Random(5)
    cases = dict(CARDS)
    for number in range(40):
        dependencies = [
            place(*(draw.choice(ODD) for _ in range(draw.randint(1, 4)))) for _ in range(draw.randint(1, 3))
        ]
        cases[f"odd {number}"] = {"dependencies": dependencies, "scope": draw.choice([(), ("altro",)])}
    cards = {name: card(number, **fields) for number, (name, fields) in enumerate(cases.items(), start=1)}
    index.drop(NAME)
    index.create(NAME, dimensions=DIMENSIONS)
    index.upsert(NAME, [IndexPoint(project(made, FORMAT), EAST, words(1)) for made in cards.values()])
    yield cards
    index.drop(NAME)


def _found(index: VectorIndex, cards: dict[str, MemoryRecord], context: SearchContext) -> set[str]:
    """Names of the cards that the server finds; the same by each branch and by both together."""
    names = {made.id: name for name, made in cards.items()}
    query = HybridQuery(
        dense=EAST,
        lexical=words(1),
        filter=SearchFilter.of(context),
        limit=len(cards),
        prefetch=len(cards),
        lexical_weight=PROFILE.lexical_weight,
        lexical_half=PROFILE.lexical_half,
    )
    found = {names[hit.ref] for hit in index.search(NAME, query)}
    for branch in ("dense", "bm25"):
        assert {names[hit.ref] for hit in index.search_branch(NAME, query, branch)} == found
    return found


def _allowed(cards: dict[str, MemoryRecord], context: SearchContext) -> set[str]:
    return {name for name, made in cards.items() if context.allows(made)}
