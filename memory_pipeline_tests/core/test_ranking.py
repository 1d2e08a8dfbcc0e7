"""Who takes whose place, who comes along, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.ranking import FACTORS, Edge, Step, choose, joint_scores, newest, told, without_circles

STEPS = {"->": Step.REQUIRES, "~": Step.RELATED, "=>": Step.SUPERSEDED_BY}


def graph(text: str) -> tuple[Edge, ...]:
    """`a->b b~c c=>d`: a requires b, b is related to c, d supersedes c."""
    edges = []
    for part in text.split():
        sign = next(sign for sign in STEPS if sign in part)
        source, _, target = part.partition(sign)
        edges.append(Edge(source, STEPS[sign], target))
    return without_circles(edges)


def kept(hits: str, links: str = "", *, limit: int = 2, available: str = "abcdefgh") -> str:
    """The cards kept, in the order in which they were taken."""
    return "".join(choose(list(hits), graph(links), set(available), limit=limit))


@pytest.mark.parametrize(
    ("hits", "links", "cards"),
    [
        pytest.param("abc", "", "ab", id="the best hits, as many as wanted"),
        pytest.param("abc", "a->d d->e", "abde", id="what a hit requires comes along, and what that requires"),
        pytest.param("abc", "c->d", "ab", id="but not of a hit that is not kept"),
        pytest.param("abc", "a->c", "abc", id="a hit beyond the limit comes along where one requires it"),
        pytest.param("abc", "a->b b->a", "ab", id="each once, round in a circle"),
        pytest.param("abc", "a->d b->d", "abd", id="each once, by two ways"),
        pytest.param("abc", "a~d", "ab", id="a related card has no place where hits have them all"),
        pytest.param("a", "a~d a~e", "ad", id="related cards take the places that are free"),
        pytest.param("a", "a~d d->e", "ade", id="with what they require"),
        pytest.param("a", "a~d a->e", "aed", id="what is required takes no place"),
        pytest.param("a", "a~d d~a", "ad", id="related to each other"),
        pytest.param("a", "a->d d~e", "ade", id="related to what comes along"),
        pytest.param("abc", "a=>d", "db", id="a superseded hit gives its place to the newer card"),
        pytest.param("abc", "a=>c", "cb", id="which may be a lesser hit"),
        pytest.param("abc", "b=>a", "ac", id="or a better one, and then the place is free"),
        pytest.param("abc", "a=>d d=>e", "eb", id="to the newest of a chain"),
        pytest.param("abc", "a=>d a=>e", "de", id="to each of several"),
        pytest.param("abc", "a=>b b=>a", "ab", id="two that supersede each other stay"),
        pytest.param("abc", "a=>b b=>a a=>d", "db", id="unless one is superseded from outside, as it would be alone"),
        pytest.param("ab", "a->d d=>e", "abe", id="of what is required the newest comes along"),
        pytest.param("ab", "a=>d a->e d->f", "dbf", id="with what the newer card requires, not the older one"),
        pytest.param("ab", "a=>x", "b", id="where the newer card may not be proposed, neither is the older one"),
        pytest.param("ab", "a->x x->d", "ab", id="and nothing behind it"),
        pytest.param("", "a->b", "", id="no hit, no card"),
    ],
)
def test_which_cards_are_kept(hits: str, links: str, cards: str) -> None:
    assert kept(hits, links) == cards


def test_a_card_supersedes_itself_in_vain() -> None:
    assert graph("a=>a a->a") == ()
    assert newest("a", graph("a=>a")) == ("a",)


def test_paths_tell_how_each_card_was_reached() -> None:
    paths = choose(["a", "b"], graph("a->c c=>d b=>e d->f"), set("abcdef"), limit=2)
    assert {card: told(path) for card, path in paths.items()} == {
        "a": "search",
        "e": "b superseded by e",
        "d": "a requires c superseded by d",
        "f": "a requires c superseded by d requires f",
    }


def test_a_card_that_the_search_found_was_reached_by_the_search_whatever_it_supersedes() -> None:
    assert told(choose(["a", "b"], graph("a=>b"), {"a", "b"}, limit=2)["b"]) == "search"


def test_a_hit_beyond_the_limit_was_reached_by_what_brought_it() -> None:
    assert told(choose(["a", "b", "c"], graph("a=>c"), set("abc"), limit=1)["c"]) == "a superseded by c"
    assert told(choose(["a", "b", "c"], graph("a->c"), set("abc"), limit=1)["c"]) == "a requires c"


@pytest.mark.parametrize(
    ("own", "links", "cards", "scores"),
    [
        pytest.param({"a": 1.0}, "a->b", "ab", {"b": FACTORS[Step.REQUIRES]}, id="a card has what its link brings it"),
        pytest.param({"a": 1.0, "b": 0.9}, "a->b", "ab", {"b": 0.9}, id="or its own score, where that is higher"),
        pytest.param({"a": 1.0, "b": 0.1}, "a->b", "ab", {"b": FACTORS[Step.REQUIRES]}, id="and not where it is lower"),
        pytest.param({"a": 1.0}, "a->b b->c", "abc", {"c": FACTORS[Step.REQUIRES] ** 2}, id="less with every step"),
        pytest.param({"a": 1.0}, "a~b", "ab", {"b": FACTORS[Step.RELATED]}, id="each relation has its factor"),
        pytest.param(
            {"a": 1.0, "c": 0.9},
            "a~b c->b",
            "abc",
            {"b": FACTORS[Step.REQUIRES] * 0.9},
            id="the best way counts, not the first",
        ),
        pytest.param({"a": -0.5}, "a->b", "ab", {"a": -0.5, "b": 0.0}, id="a negative score brings nothing"),
        pytest.param({"a": 1.0, "b": 0.2}, "a=>b", "b", {"b": 1.0}, id="a newer card has the better of both scores"),
        pytest.param({"a": 0.2, "b": 1.0}, "a=>b", "b", {"b": 1.0}, id="whichever that is"),
        pytest.param({"a": 1.0, "c": 0.5}, "a->b", "bc", {"b": 0.0, "c": 0.5}, id="a card left out brings nothing"),
        pytest.param({"a": 1.0}, "a->b b->a", "ab", {"a": 1.0, "b": FACTORS[Step.REQUIRES]}, id="round in a circle"),
    ],
)
def test_what_a_card_is_ranked_by(own: dict[str, float], links: str, cards: str, scores: dict[str, float]) -> None:
    joint = joint_scores(own, graph(links), set(cards))
    assert joint.keys() == set(cards)
    assert {card: joint[card] for card in scores} == pytest.approx(scores)


CARDS = st.sampled_from("abcdefg")
EDGES = st.lists(st.builds(Edge, CARDS, st.sampled_from(Step), CARDS), max_size=20)


@given(hits=st.lists(CARDS, unique=True), links=EDGES, available=st.frozensets(CARDS), limit=st.integers(1, 5))
def test_any_web_of_links_gives_each_card_once_complete_and_with_a_real_path(
    hits: list[str], links: list[Edge], available: frozenset[str], limit: int
) -> None:
    edges = without_circles(links)
    paths = choose(hits, edges, available, limit=limit)

    assert paths.keys() <= available
    direct = [card for card, path in paths.items() if all(edge.step is Step.SUPERSEDED_BY for edge in path)]
    assert len(direct) <= limit
    for card, path in paths.items():
        assert [edge.target for edge in path] == [*(edge.source for edge in path[1:]), card][: len(path)]
        assert (path[0].source if path else card) in hits
        assert set(path) <= set(edges)
    for edge in edges:
        if edge.step is Step.REQUIRES and edge.source in paths:
            assert set(newest(edge.target, edges)) & available <= paths.keys()
    assert joint_scores(dict.fromkeys(hits, 1.0), edges, paths).keys() == paths.keys()


@given(links=EDGES, order=st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_in_which_links_were_read(links: list[Edge], order: object) -> None:
    shuffled = list(links)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    own = {"a": 1.0, "b": 0.7, "c": -0.1}
    here, there = (joint_scores(own, without_circles(edges), set("abcdefg")) for edges in (links, shuffled))
    assert here == there
