"""What is shown beside a candidate: what says nearly the same, with the numbers that differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.decide import Outcome
from memory_pipeline.operations.index import index
from memory_pipeline.operations.preview import Preview, preview
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.similar import MOST_SIMILAR, LookedUp
from memory_pipeline_tests.flows import closed_port, promote, revise, with_settings
from memory_pipeline_tests.operations.sessions import concept, offer, outcomes, rows, settle, tell

pytestmark = pytest.mark.integration

FIVE = {"subject": "follow-up", "detail": "paziente osservato per 5 anni dalla dimissione dal reparto"}
SIX = {"subject": "follow-up", "detail": "paziente osservato per 6 anni dalla dimissione dal reparto"}
SIX_ELSEWHERE = {**SIX, "dependencies": [{"database": "registro"}]}
OTHER = {"subject": "commessa", "detail": "chiave data da codice e anno di esercizio"}


@pytest.fixture
def filled(services: Services, workspace: Workspace) -> Workspace:
    """An indexed workspace with mem-0001, a follow-up of five years, and mem-0002 on another topic."""
    place = {"dependencies": [{"database": "cardio"}]}
    promote(services, workspace.slug, [{**FIVE, **place}, OTHER], session="s1")
    drain(services, workspace.slug)
    return workspace


def refs(shown: Preview) -> list[list[str]]:
    return [[similar.ref for similar in one.similar_to] for one in shown.candidates]


def test_six_years_are_shown_beside_five_and_are_not_merged_with_them(services: Services, filled: Workspace) -> None:
    tell(services, filled.slug, {"type_": "session_opened", "question": "Una domanda del tutto diversa?"}, session="s2")
    tell(services, filled.slug, SIX, session="s2")
    shown = offer(services, filled.slug, "s2")
    assert shown.similarity.looked_up is LookedUp.HYBRID
    (offered,) = shown.candidates
    assert (offered.duplicate_of, offered.candidate.preselected) == (None, True)
    (similar,) = offered.similar_to
    assert (similar.ref, similar.subject, similar.detail) == ("mem-0001", FIVE["subject"], FIVE["detail"])
    assert (similar.numbers_here, similar.numbers_there) == (("6 anni",), ("5 anni",))
    assert similar.overlap == 1.0
    assert similar.cosine is not None
    assert 0 < similar.cosine < 1
    decision = settle(services, filled.slug, shown, select=(2,))
    assert outcomes(decision) == [(2, Outcome.CREATED, "mem-0003")]


def test_another_wording_is_near_by_its_meaning(services: Services, filled: Workspace) -> None:
    reworded = concept("osservazione dopo la dimissione", detail="pazienti osservati per 5 anni da quando sono dimessi")
    tell(services, filled.slug, reworded, session="s2")
    (offered,) = offer(services, filled.slug, "s2").candidates
    assert [similar.ref for similar in offered.similar_to] == ["mem-0001"]
    assert offered.similar_to[0].overlap < 0.5


def test_near_duplicates_of_one_session_both_reach_the_human_and_point_at_each_other(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, FIVE, SIX, OTHER)
    shown = offer(services, workspace.slug)
    assert refs(shown) == [["seq:2"], ["seq:1"], []]
    five, six = (one.similar_to[0] for one in shown.candidates[:2])
    assert (five.numbers_here, five.numbers_there, five.cosine) == (("5 anni",), ("6 anni",), None)
    assert (six.numbers_here, six.numbers_there) == (("6 anni",), ("5 anni",))
    decision = settle(services, workspace.slug, shown, select=(1, 2))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-0001"), (2, Outcome.CREATED, "mem-0002")]


def test_a_neighbour_beyond_the_page_is_pointed_at_too(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, FIVE, SIX)
    shown = preview(services, workspace.slug, "s1", limit=1)
    assert refs(shown) == [["seq:2"]]


def test_of_many_neighbours_the_nearest_are_shown(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, *(concept("follow-up", detail=f"osservato per {n} anni") for n in range(12)))
    assert {len(near) for near in refs(offer(services, workspace.slug))} == {MOST_SIMILAR}


@pytest.mark.parametrize(
    ("told", "near"),
    [
        pytest.param(FIVE, ["mem-0001"], id="the same text without a place is another card"),
        pytest.param({**FIVE, "dependencies": [{"database": "cardio"}]}, [], id="the very same is a duplicate"),
        pytest.param(SIX_ELSEWHERE, [], id="a place that the card does not serve"),
        pytest.param(concept("tariffa", detail="importo orario concordato con il cliente"), [], id="another topic"),
        pytest.param(
            {**SIX, "dependencies": [{"database": "cardio", "table": "fact_visite"}]}, ["mem-0001"], id="within"
        ),
    ],
)
def test_only_what_is_near_and_serves_the_places_of_the_candidate_is_shown(
    services: Services, filled: Workspace, told: dict[str, Any], near: list[str]
) -> None:
    tell(services, filled.slug, told, session="s2")
    assert refs(offer(services, filled.slug, "s2")) == [near]


def test_a_card_that_is_deleted_or_that_the_index_has_yet_to_follow_is_not_shown(
    services: Services, filled: Workspace
) -> None:
    tell(services, filled.slug, SIX, session="s2")
    revise(services, filled.slug, "mem-0001", detail=f"{FIVE['detail']}, in ogni caso")
    assert refs(offer(services, filled.slug, "s2")) == [[]]
    drain(services, filled.slug)
    assert refs(offer(services, filled.slug, "s2")) == [["mem-0001"]]
    revise(services, filled.slug, "mem-0001", status="deleted")
    assert refs(offer(services, filled.slug, "s2")) == [[]]


def test_the_index_changes_what_is_shown_and_nothing_of_what_is_decided(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [FIVE], session="s1")
    tell(services, workspace.slug, SIX, session="s2")
    before = offer(services, workspace.slug, "s2")
    assert (refs(before), before.similarity.looked_up) == ([[]], LookedUp.NOT_AT_ALL)
    index(services, workspace.slug)
    after = offer(services, workspace.slug, "s2")
    assert refs(after) == [["mem-0001"]]
    assert before.candidates[0].candidate == after.candidates[0].candidate
    settle(services, workspace.slug, before, select=(1,))


# --- without a server --------------------------------------------------------------------------------------------


@pytest.fixture(params=["qdrant_url", "ollama_url"])
def half(services: Services, request: pytest.FixtureRequest) -> Iterator[tuple[str, Services]]:
    """The stack with one server out of reach, and the name of its setting."""
    using = with_settings(services, **{request.param: f"http://127.0.0.1:{closed_port()}"})
    yield request.param, using
    using.close()


def test_without_a_server_the_preview_succeeds_and_says_what_was_not_looked_up(
    services: Services, filled: Workspace, half: tuple[str, Services]
) -> None:
    down, using = half
    tell(services, filled.slug, SIX, {**SIX, "detail": SIX["detail"].replace("6", "7")}, session="s2")
    shown = offer(using, filled.slug, "s2")
    assert shown.similarity.problem
    by_words = down == "ollama_url"
    assert shown.similarity.looked_up is (LookedUp.LEXICAL if by_words else LookedUp.NOT_AT_ALL)
    beside = ["mem-0001"] if by_words else []
    assert refs(shown) == [[*beside, "seq:2"], [*beside, "seq:1"]]
    assert {similar.cosine for one in shown.candidates for similar in one.similar_to} == {None}
    settle(services, filled.slug, shown, select=(1,), decline=(2,))


def test_a_collection_that_was_lost_stops_no_preview(services: Services, filled: Workspace) -> None:
    ((collection,),) = rows(services, filled.slug, "SELECT collection FROM generations WHERE state = 'serving'")
    services.index.drop(collection)
    tell(services, filled.slug, SIX, session="s2")
    shown = offer(services, filled.slug, "s2")
    assert (shown.similarity.looked_up, refs(shown)) == (LookedUp.NOT_AT_ALL, [[]])
    assert collection in str(shown.similarity.problem)


def test_a_text_too_long_to_embed_at_once_is_compared_by_its_words(services: Services, filled: Workspace) -> None:
    tell(services, filled.slug, concept("follow-up", detail="paziente osservato " * 2000), session="s2")
    shown = offer(services, filled.slug, "s2")
    assert shown.similarity.looked_up is LookedUp.HYBRID
    ((similar,),) = [one.similar_to for one in shown.candidates]
    assert (similar.ref, similar.cosine) == ("mem-0001", None)
