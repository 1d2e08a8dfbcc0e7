"""Filters: what a search may find, on the server itself and in every branch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from memory_pipeline.core.cards import CardKind, scope_key
from memory_pipeline.core.dependencies import Dependency, serves
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline.index.wire import to_filter
from memory_pipeline_tests.index.samples import DIMENSIONS, Sparse, depends_on, point, query

pytestmark = pytest.mark.integration


def refs(index: VectorIndex, collection: str, asked: HybridQuery) -> set[str]:
    """Ids of the cards found, the same by every way of asking."""
    found = {hit.ref for hit in index.search(collection, asked)}
    for branch in ("dense", "bm25"):
        assert {hit.ref for hit in index.search_branch(collection, asked, branch)} == found
    return found


@pytest.fixture(scope="module")
def places(index: VectorIndex, shared: str) -> str:
    """Eight cards, each with its own places."""
    dependencies = {
        1: (),
        2: ("cardio",),
        3: ("cardio/public",),
        4: ("cardio/public/ablazioni",),
        5: ("cardio/public/ablazioni/esito",),
        6: ("oncologia/public/ablazioni/esito",),
        7: ("cardio/archivio/ablazioni", "oncologia/public/ricoveri"),
        8: ("cardio//ablazioni",),
    }
    points = [point(number, dependencies=depends_on(*paths)) for number, paths in dependencies.items()]
    index.upsert(shared, points)
    return shared


@pytest.mark.parametrize(
    ("context", "found"),
    [
        pytest.param((), {1, 2, 3, 4, 5, 6, 7, 8}, id="no context narrows nothing"),
        pytest.param(("cardio",), {1, 2, 3, 4, 5, 7, 8}, id="a database finds all that lies within"),
        pytest.param(("cardio/public",), {1, 2, 3, 4, 5}, id="a schema: what holds it and what lies within"),
        pytest.param(("cardio/public/ablazioni",), {1, 2, 3, 4, 5}, id="a table"),
        pytest.param(("cardio/public/ablazioni/esito",), {1, 2, 3, 4, 5}, id="a column is served by its ancestors"),
        pytest.param(("cardio/public/ablazioni/data",), {1, 2, 3, 4}, id="not by a sibling"),
        pytest.param(("cardio/public/ricoveri",), {1, 2, 3}, id="two dependencies are never combined"),
        pytest.param(("oncologia/archivio/ablazioni",), {1}, id="nor in the other direction"),
        pytest.param(("cardio//ablazioni",), {1, 2, 8}, id="a table without schema"),
        pytest.param(("card",), {1}, id="a path is no prefix of letters"),
        pytest.param(("altro",), {1}, id="another database leaves what serves everything"),
        pytest.param(("cardio/archivio", "oncologia"), {1, 2, 6, 7}, id="any of several places"),
    ],
)
def test_a_card_is_found_where_one_of_its_dependencies_holds_or_lies_within_the_context(
    index: VectorIndex, places: str, context: tuple[str, ...], found: set[int]
) -> None:
    assert refs(index, places, query(context=context)) == {f"mem-{number:04d}" for number in found}


@pytest.fixture(scope="module")
def many(index: VectorIndex) -> Iterator[tuple[str, dict[str, tuple[Dependency, ...]]]]:
    """A collection of cards with every mixture of a few places."""
    name = "test__many_places"
    places = ["/".join(parts) for length in (1, 2, 3, 4) for parts in itertools.product("ab", repeat=length)]
    places += ["a//a", "a//a/b", "b//a"]
    generator = random.Random(11)
    cards = {f"mem-{number:04d}": depends_on(*generator.sample(places, number % 4)) for number in range(1, 121)}
    index.drop(name)
    index.create(name, dimensions=DIMENSIONS)
    index.upsert(name, [point(int(ref[4:]), dependencies=paths) for ref, paths in cards.items()])
    yield name, cards
    index.drop(name)


def test_the_filter_is_the_rule_of_the_domain(
    index: VectorIndex, many: tuple[str, dict[str, tuple[Dependency, ...]]]
) -> None:
    """Every context of one place and some of two, against the pure rule."""
    name, cards = many
    single = ["/".join(parts) for length in (1, 2, 3, 4) for parts in itertools.product("ab", repeat=length)]
    single += ["a//a", "a//a/b", "b//b", "c"]
    generator = random.Random(12)
    for context in [(place,) for place in single] + [tuple(generator.sample(single, 2)) for _ in range(20)]:
        found = {hit.ref for hit in index.search(name, query(context=context, limit=200, prefetch=200))}
        assert found == {ref for ref, dependencies in cards.items() if serves(dependencies, context)}, context


def test_names_that_need_escaping_and_letters_of_either_case_are_one_place(index: VectorIndex, collection: str) -> None:
    slashed = Dependency(database="Cardio", schema_="Età/anni", table="100%")
    index.upsert(collection, [point(1, dependencies=(slashed,)), point(2, dependencies=depends_on("cardio/età"))])
    same = Dependency(database="CARDIO", schema_="eta\u0300/ANNI", table="100%")
    assert refs(index, collection, query(context=(same.path(),))) == {"mem-0001"}


def test_a_scope_finds_its_own_cards_and_those_without_one(index: VectorIndex, collection: str) -> None:
    scopes: dict[int, tuple[str, ...]] = {1: (), 2: ("Cardiologia",), 3: ("oncologia",), 4: ("cardiologia", "UTIC")}
    index.upsert(collection, [point(number, scope=scope) for number, scope in scopes.items()])
    everything = refs(index, collection, query())
    assert everything == {"mem-0001", "mem-0002", "mem-0003", "mem-0004"}
    assert refs(index, collection, query(scope=scope_key(("CARDIOLOGIA",)))) == {"mem-0001", "mem-0002"}
    assert refs(index, collection, query(scope=scope_key(("utic", "Cardiologia")))) == {"mem-0001", "mem-0004"}
    assert refs(index, collection, query(scope="")) == {"mem-0001"}


def test_concepts_find_cards_that_share_one(index: VectorIndex, collection: str) -> None:
    index.upsert(
        collection,
        [point(1, concepts=("Ablazione", "esito")), point(2, concepts=("ricovero",)), point(3)],
    )
    assert refs(index, collection, query(concepts=("ablazione", "altro"))) == {"mem-0001"}
    assert refs(index, collection, query(concepts=("esito", "ricovero"))) == {"mem-0001", "mem-0002"}
    assert refs(index, collection, query(concepts=("nulla",))) == set()


def test_a_search_finds_memories_unless_told(index: VectorIndex, collection: str) -> None:
    index.upsert(
        collection,
        [point(1), point(2, kind="exemplar", type="exemplar"), point(3, kind="evidence", type="evidence")],
    )
    assert refs(index, collection, query()) == {"mem-0001"}
    assert refs(index, collection, query(kinds=(CardKind.EXEMPLAR,))) == {"mem-0002"}
    assert refs(index, collection, query(kinds=tuple(CardKind))) == {"mem-0001", "mem-0002", "mem-0003"}


def test_cards_can_be_left_out_by_id(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(number) for number in (1, 2, 3)])
    assert refs(index, collection, query(without=("mem-0002", "mem-0009"))) == {"mem-0001", "mem-0003"}


def test_all_conditions_hold_together(index: VectorIndex, collection: str) -> None:
    right = {"dependencies": depends_on("cardio"), "scope": ("a",), "concepts": ("x",)}
    wrong = [{"dependencies": depends_on("onco")}, {"scope": ("b",)}, {"concepts": ("y",)}, {"kind": "evidence"}]
    cards = [point(number + 2, **{**right, **change}) for number, change in enumerate(wrong)]
    index.upsert(collection, [point(1, **right), *cards])
    asked = query(context=("cardio/public",), scope=scope_key(("a",)), concepts=("x",))
    assert refs(index, collection, asked) == {"mem-0001"}


def test_a_crowd_that_may_not_be_found_never_takes_the_places_of_those_that_may(
    index: VectorIndex, collection: str
) -> None:
    """The filter is inside each branch: with a filter after the fusion, a shallow prefetch would bring nothing."""
    crowd = [point(number, dependencies=depends_on("onco")) for number in range(2, 60)]
    index.upsert(collection, [point(1, dependencies=depends_on("cardio")), *crowd])
    asked = query(context=("cardio",), limit=1, prefetch=1)
    assert [hit.ref for hit in index.search(collection, asked)] == ["mem-0001"]
    for method in ("rrf", "dbsf"):
        shallow = query(context=("cardio",), limit=1, prefetch=1, method=method)
        assert [hit.ref for hit in index.search(collection, shallow)] == ["mem-0001"]


def test_no_condition_is_nested_or_on_a_boolean() -> None:
    wanted = SearchFilter(
        kinds=tuple(CardKind), context=("a/b", "a/c"), scope="s", concepts=("x", "y"), without=("mem-0001",)
    )
    filter_ = to_filter(wanted)
    conditions = [*filter_.must, *filter_.should, *filter_.must_not]
    assert {condition.key for condition in filter_.should} == {"dep_none", "dep_paths", "dep_prefixes"}
    for condition in conditions:
        assert all(isinstance(value, str) for value in condition.match.any)


def test_a_filter_without_a_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        SearchFilter(kinds=())
    assert SearchFilter().kinds == (CardKind.MEMORY,)


def test_a_filter_that_leaves_nothing_gives_an_empty_answer(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(1, dependencies=depends_on("onco"))])
    for method in ("score", "rrf", "dbsf"):
        assert index.search(collection, query(context=("cardio",), method=method)) == []
        assert index.search(collection, query(lexical=Sparse(), context=("cardio",), method=method)) == []
