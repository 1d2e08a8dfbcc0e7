"""Where a card holds, and which searches it serves."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.dependencies import Dependency, canonical, prefixes, serves
from memory_pipeline.core.errors import BadDependency, BadText
from memory_pipeline_tests.core.builders import place
from memory_pipeline_tests.nasty import STORABLE_TEXTS, UNSTORABLE_TEXTS

NAMES = st.text(st.sampled_from("/%. \"'ABCaèÈ\u0300") | st.characters(codec="utf-8", exclude_characters="\0"))
SEGMENTS = NAMES.filter(lambda name: bool(name.strip()))
PLACES = st.builds(place, SEGMENTS, st.none() | SEGMENTS, SEGMENTS, st.none() | SEGMENTS) | st.builds(
    place, SEGMENTS, st.none() | SEGMENTS
)

FEW = st.sampled_from(["a", "A", "b", "a/b"])
NEIGHBOURS = st.builds(place, FEW, st.none() | FEW, FEW, st.none() | FEW) | st.builds(place, FEW, st.none() | FEW)


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"database": "cardio", "column": "cod_paz"},
        {"database": "cardio", "schema": "public", "column": "cod_paz"},
        {"database": ""},
        {"database": " \t"},
        {"database": "cardio", "schema": " "},
        {"database": "cardio", "table": ""},
        {"database": "cardio", "table": "t", "column": "\u3000"},
    ],
)
def test_a_part_without_its_parent_or_without_a_name_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(BadDependency):
        Dependency.model_validate(fields)


@pytest.mark.parametrize("text", ["NUL", "high surrogate alone"])
@pytest.mark.parametrize("part", ["database", "schema", "table", "column"])
def test_a_name_that_cannot_be_stored_is_refused(part: str, text: str) -> None:
    fields = {"database": "cardio", "table": "t", part: UNSTORABLE_TEXTS[text]}
    with pytest.raises(BadText, match=f"the {part} of a dependency"):
        Dependency.model_validate(fields)


def test_outer_blanks_of_a_name_do_not_count() -> None:
    assert Dependency.model_validate({"database": " cardio ", "schema": "public\n"}) == place("cardio", "public")


def test_a_dependency_is_written_as_it_is_read() -> None:
    written = {"database": "cardio", "schema": "public", "table": "fact_procedure", "column": None}
    assert Dependency.model_validate(written).model_dump(mode="json") == written


# --- paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dependency", "path"),
    [
        (place("cardio"), "cardio"),
        (place("cardio", "public"), "cardio/public"),
        (place("cardio", "public", "t"), "cardio/public/t"),
        (place("cardio", "public", "t", "c"), "cardio/public/t/c"),
        (place("cardio", None, "t"), "cardio//t"),
        (place("cardio", None, "t", "c"), "cardio//t/c"),
        (place("CARDIO", "Public", "T"), "cardio/public/t"),
        (place("cardio.public", "t"), "cardio.public/t"),
        (place("a/b", "c"), "a%2Fb/c"),
        (place("a%2Fb", "c"), "a%252fb/c"),
        (place("a\tb"), "a%09b"),
        (place('"Mixed Case"'), '"mixed case"'),
        (place("l'anno"), "l'anno"),
        (place("attività"), "attività"),
        (place(unicodedata.normalize("NFD", "ATTIVITÀ")), "attività"),
        (place("Straße"), "strasse"),
    ],
)
def test_a_path_is_its_folded_and_escaped_segments(dependency: Dependency, path: str) -> None:
    assert dependency.path() == path


@given(PLACES | NEIGHBOURS, PLACES | NEIGHBOURS)
def test_two_places_share_a_path_only_if_each_part_is_the_same_name(one: Dependency, other: Dependency) -> None:
    def name(part: str | None) -> str:
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part or "").casefold())

    def names(dependency: Dependency) -> list[str]:
        return [name(part) for part in (dependency.database, dependency.schema_, dependency.table, dependency.column)]

    assert (one.path() == other.path()) is (names(one) == names(other))


@given(PLACES)
def test_the_segments_of_a_path_can_be_told_apart_again(dependency: Dependency) -> None:
    depth = 4 if dependency.column else 3 if dependency.table else 2 if dependency.schema_ else 1
    assert dependency.path().count("/") == depth - 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("db", ("db",)),
        ("db/s", ("db", "db/s")),
        ("db/s/t/c", ("db", "db/s", "db/s/t", "db/s/t/c")),
        ("db//t", ("db", "db//t")),
        ("db//t/c", ("db", "db//t", "db//t/c")),
        ("d%2Fb/s", ("d%2Fb", "d%2Fb/s")),
    ],
)
def test_prefixes_are_the_ancestors_and_the_path(path: str, expected: tuple[str, ...]) -> None:
    assert prefixes(path) == expected


# --- serving -----------------------------------------------------------------------------------------------------

TABLE = place("cardio", "public", "fact_procedure")
COLUMN = place("cardio", "public", "fact_procedure", "data")


@pytest.mark.parametrize(
    ("dependencies", "context"),
    [
        pytest.param([], [COLUMN], id="a card without places serves the whole workspace"),
        pytest.param([TABLE], [], id="a search without a place is served by every card"),
        pytest.param([TABLE], [TABLE], id="the place itself"),
        pytest.param([TABLE], [COLUMN], id="a table for its column"),
        pytest.param([place("cardio")], [COLUMN], id="a database for its column"),
        pytest.param([place("cardio", "public")], [TABLE], id="a schema for its table"),
        pytest.param([COLUMN], [TABLE], id="a column for its table"),
        pytest.param([COLUMN], [place("cardio")], id="a context of only the database is not narrowed further"),
        pytest.param([place("cardio", None, "t")], [place("cardio")], id="a table without schema for its database"),
        pytest.param([place("cardio")], [place("cardio", None, "t")], id="a database for a table without schema"),
        pytest.param([place("cardio", None, "t")], [place("cardio", None, "t", "c")], id="both without schema"),
        pytest.param([place("other"), TABLE], [TABLE], id="one of several dependencies"),
        pytest.param([TABLE], [place("other"), COLUMN], id="one of several places of the search"),
        pytest.param([place("CARDIO", "PUBLIC")], [place("cardio", "public", "T")], id="upper case"),
        pytest.param([place("cardio", "attivita\u0300")], [place("cardio", "attività", "t")], id="decomposed accents"),
        pytest.param([place("a/b")], [place("a/b", "c")], id="a slash in a name"),
        pytest.param([place("a%b")], [place("a%b", "c")], id="a percent sign in a name"),
        pytest.param([place("my db", 'the "schema"')], [place("my db", 'the "schema"', "t.x")], id="spaces and quotes"),
    ],
)
def test_a_card_serves_where_one_path_is_a_prefix_of_the_other(
    dependencies: list[Dependency], context: list[Dependency]
) -> None:
    assert serves(dependencies, [somewhere.path() for somewhere in context])


@pytest.mark.parametrize(
    ("dependencies", "context"),
    [
        pytest.param([place("dwh", "public", "fact_procedure")], [TABLE], id="the same table in another database"),
        pytest.param([place("cardio", "staging")], [TABLE], id="another schema"),
        pytest.param([place("cardio", "staging", "fact_procedure")], [TABLE], id="the same table in two schemas"),
        pytest.param([place("cardio", "public", "dim_paziente")], [TABLE], id="another table"),
        pytest.param([place("cardio", "public", "fact_procedure", "esito")], [COLUMN], id="another column"),
        pytest.param(
            [place("cardio", "staging", "dim_data"), place("dwh", "public", "fact_procedure")],
            [TABLE],
            id="database of one dependency and table of another",
        ),
        pytest.param(
            [place("cardio", "public", "dim_data"), place("cardio", "staging", "fact_procedure", "data")],
            [COLUMN],
            id="schema of one dependency and column of another",
        ),
        pytest.param(
            [TABLE],
            [place("cardio", "staging"), place("dwh", "public", "fact_procedure")],
            id="parts of two places of the search",
        ),
        pytest.param([place("cardio", None, "t")], [place("cardio", "public", "t")], id="no schema is none, not any"),
        pytest.param([place("cardio", "public", "t")], [place("cardio", None, "t")], id="nor the other way round"),
        pytest.param([place("cardio", None, "t")], [place("cardio", "public")], id="no schema, in a schema's context"),
        pytest.param([place("card")], [place("cardio")], id="the beginning of a name is no ancestor"),
        pytest.param([place("cardio", "pub")], [place("cardio", "public")], id="nor that of a schema"),
        pytest.param([place("a/b")], [place("a", "b")], id="a slash in a name makes no level"),
        pytest.param([place("a", "b/c")], [place("a", "b", "c")], id="nor in a schema"),
        pytest.param([place("a%2Fb")], [place("a/b")], id="a name written like an escape is another name"),
        pytest.param([place("cardio.public")], [place("cardio", "public")], id="a dot in a name makes no level"),
        pytest.param([place("cardio")], [place("cárdio")], id="accents count"),
        pytest.param([place('"cardio"')], [place("cardio")], id="quotes are part of a name"),
        pytest.param([place("t", None, "c")], [place("t", "c")], id="a table is not a schema of that name"),
    ],
)
def test_a_card_does_not_serve_a_place_that_no_single_dependency_covers(
    dependencies: list[Dependency], context: list[Dependency]
) -> None:
    assert not serves(dependencies, [somewhere.path() for somewhere in context])


@given(NEIGHBOURS, NEIGHBOURS)
def test_serving_one_place_is_symmetric(one: Dependency, other: Dependency) -> None:
    assert serves([one], [other.path()]) is serves([other], [one.path()])


@given(st.lists(NEIGHBOURS, min_size=1, max_size=4), st.lists(NEIGHBOURS, min_size=1, max_size=3))
def test_the_flat_keywords_of_a_point_say_the_same(dependencies: list[Dependency], context: list[Dependency]) -> None:
    """The index has only lists of paths and of prefixes: two membership conditions have to mean `serves`."""
    places = {somewhere.path() for somewhere in context}
    dep_paths = {dependency.path() for dependency in dependencies}
    dep_prefixes = {prefix for path in dep_paths for prefix in prefixes(path)}
    ancestors = {prefix for path in places for prefix in prefixes(path)}
    assert serves(dependencies, places) is bool(dep_prefixes & places or dep_paths & ancestors)


# --- canonical form ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dependency", "default_schema", "path"),
    [
        (place("cardio", None, "t"), "public", "cardio/public/t"),
        (place("cardio", None, "t", "c"), "public", "cardio/public/t/c"),
        (place("cardio", None, "t"), None, "cardio//t"),
        (place("cardio", "staging", "t"), "public", "cardio/staging/t"),
        (place("cardio"), "public", "cardio"),
    ],
)
def test_a_table_without_schema_takes_the_default(
    dependency: Dependency, default_schema: str | None, path: str
) -> None:
    assert dependency.resolved(default_schema).path() == path


def test_the_canonical_form_is_sorted_and_holds_each_place_once() -> None:
    written = [place("b"), place("a", None, "T"), place("A", "public", "t"), place("a"), place("B")]
    assert canonical(written, "public") == (place("a"), place("a", "public", "T"), place("b"))


@pytest.mark.parametrize("name", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_an_odd_name_is_a_place_like_any_other(name: str) -> None:
    path = place(name, "s").path()
    assert serves([place(name)], [path])
    assert path.count("/") == 1
