"""Deciding on what the registry knows already: equal cards, deleted ones, and links between cards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.decide import Outcome, decide
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store.database import Role
from memory_pipeline_tests.flows import revise
from memory_pipeline_tests.operations.sessions import (
    OUTBOX,
    SOURCES,
    concept,
    links,
    offer,
    outcomes,
    requires,
    rows,
    settle,
    tell,
    written,
)

pytestmark = pytest.mark.integration

# --- what is known already ---------------------------------------------------------------------------------------


@pytest.fixture
def known(services: Services, workspace: Workspace) -> Workspace:
    """A workspace with mem-0001, on ablation, from session s1."""
    tell(services, workspace.slug, concept("ablazione", concepts=["aritmia"]))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    return workspace


def test_selecting_a_duplicate_adds_its_sources_and_no_card_revision_or_outbox_row(
    services: Services, known: Workspace
) -> None:
    tell(services, known.slug, concept("Ablazione"), concept("ablazione."), session="s2")
    before = written(services, known.slug)
    decision = settle(services, known.slug, offer(services, known.slug, "s2"), select=(1,))
    assert outcomes(decision) == [(1, Outcome.PROVENANCE_ADDED, "mem-0001")]
    assert decision.verdicts[0].warnings == ()
    after = written(services, known.slug)
    added = {kind: after[kind] - before[kind] for kind in after}
    assert added == {"cards": 0, "revisions": 0, "sources": 2, "markers": 2, "outbox": 0}
    assert [row[:3] for row in rows(services, known.slug, SOURCES)][1:] == [
        ("mem-0001", "s2", 1),
        ("mem-0001", "s2", 2),
    ]
    assert decide(services, known.slug, decision.preview_id, selected=[1], declined=[]) == decision


def test_a_match_that_appeared_after_the_preview_adds_its_source(services: Services, workspace: Workspace) -> None:
    for session in ("s1", "s2"):
        tell(services, workspace.slug, concept("ablazione"), session=session)
    first, second = offer(services, workspace.slug, "s1"), offer(services, workspace.slug, "s2")
    assert [one.duplicate_of for one in second.candidates] == [None]
    settle(services, workspace.slug, first, select=(1,))
    decision = settle(services, workspace.slug, second, select=(1,))
    assert outcomes(decision) == [(1, Outcome.PROVENANCE_ADDED, "mem-0001")]
    assert "since the preview" in decision.verdicts[0].warnings[0]
    assert settle(services, workspace.slug, second, select=(1,)) == decision


def test_a_match_that_went_away_after_the_preview_gives_a_card_and_says_so(
    services: Services, known: Workspace
) -> None:
    tell(services, known.slug, concept("ablazione"), session="s2")
    shown = offer(services, known.slug, "s2")
    assert [one.duplicate_of for one in shown.candidates] == ["mem-0001"]
    revise(services, known.slug, "mem-0001", status="deleted")
    decision = settle(services, known.slug, shown, select=(1,))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-0002")]
    assert "mem-0001 no longer" in decision.verdicts[0].warnings[0]


def test_two_sessions_previewed_at_once_with_one_text_give_one_card_with_two_sources(
    services: Services, workspace: Workspace
) -> None:
    for session in ("s1", "s2"):
        tell(services, workspace.slug, concept("ablazione"), session=session)
    with ThreadPoolExecutor(2) as pool:
        shown = list(pool.map(lambda session: offer(services, workspace.slug, session), ("s1", "s2")))
        decided = list(pool.map(lambda one: settle(services, workspace.slug, one, select=(1,)), shown))
    assert sorted(one.verdicts[0].outcome for one in decided) == [Outcome.CREATED, Outcome.PROVENANCE_ADDED]
    assert sorted(row[:3] for row in rows(services, workspace.slug, SOURCES)) == [
        ("mem-0001", "s1", 1),
        ("mem-0001", "s2", 1),
    ]


def test_concepts_and_links_that_a_duplicate_would_have_brought_are_a_warning(
    services: Services, known: Workspace
) -> None:
    brought = concept("ablazione", concepts=["Aritmia.", "ritmo"], **requires("seq:1"))
    tell(services, known.slug, concept("frequenza"), brought, session="s2")
    decision = settle(services, known.slug, offer(services, known.slug, "s2"), select=(1, 2))
    assert outcomes(decision)[1] == (2, Outcome.PROVENANCE_ADDED, "mem-0001")
    warnings = decision.verdicts[1].warnings
    assert len(warnings) == 2
    assert "ritmo" in warnings[0]
    assert "ritmia" not in warnings[0]
    assert "requires mem-0002" in warnings[1]


def test_a_link_that_the_card_has_is_no_warning(services: Services, workspace: Workspace) -> None:
    for session in ("s1", "s2"):
        tell(services, workspace.slug, concept("frequenza"), concept("ablazione", **requires("seq:1")), session=session)
        decision = settle(services, workspace.slug, offer(services, workspace.slug, session), select=(1, 2))
    assert [verdict.warnings for verdict in decision.verdicts] == [(), ()]
    assert links(services, workspace.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}


def test_a_deleted_match_gives_a_new_card_with_a_new_id(services: Services, known: Workspace) -> None:
    revise(services, known.slug, "mem-0001", status="deleted")
    tell(services, known.slug, concept("ablazione"), session="s2")
    decision = settle(services, known.slug, offer(services, known.slug, "s2"), select=(1,))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-0002")]


def test_a_promoted_decision_is_not_promoted_again_after_its_card_was_deleted(
    services: Services, known: Workspace
) -> None:
    revise(services, known.slug, "mem-0001", status="deleted")
    assert offer(services, known.slug, "s1").pending == 0


def test_another_scope_or_place_is_another_card(services: Services, known: Workspace) -> None:
    tell(
        services,
        known.slug,
        concept("ablazione", scope=["per anno"]),
        concept("ablazione", dependencies=[{"database": "cardio"}]),
        session="s2",
    )
    decision = settle(services, known.slug, offer(services, known.slug, "s2"), select=(1, 2))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-0002"), (2, Outcome.CREATED, "mem-0003")]


# --- links -------------------------------------------------------------------------------------------------------

LINKED = [concept("a", **requires("seq:2")), concept("b")]


def test_links_between_decisions_of_one_checklist_become_links_between_cards(
    services: Services, workspace: Workspace
) -> None:
    circle = [concept("a", **requires("seq:2")), concept("b", **requires("seq:1")), concept("c", **requires("seq:3"))]
    tell(services, workspace.slug, *circle)
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1, 2, 3))
    assert links(services, workspace.slug) == {
        "mem-0001": ["mem-0002"],
        "mem-0002": ["mem-0001"],
        "mem-0003": ["mem-0003"],
    }


def test_a_link_to_a_decision_promoted_before_points_to_its_card_at_once(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, *LINKED)
    shown = offer(services, workspace.slug)
    settle(services, workspace.slug, shown, select=(2,))
    settle(services, workspace.slug, shown, select=(1,))
    assert links(services, workspace.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}
    assert rows(services, workspace.slug, OUTBOX) == [("mem-0001", 1, "pending"), ("mem-0002", 1, "pending")]


def test_a_link_to_a_decision_promoted_later_is_resolved_by_a_revision_that_is_kept_and_queued(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, *LINKED)
    shown = offer(services, workspace.slug)
    settle(services, workspace.slug, shown, select=(1,))
    assert links(services, workspace.slug) == {"mem-0001": ["seq:2"]}
    settle(services, workspace.slug, shown, select=(2,))
    assert links(services, workspace.slug) == {"mem-0001": ["mem-0002"], "mem-0002": []}
    revisions = "SELECT card_id, revision, card -> 'links' -> 0 ->> 'target' FROM card_revisions ORDER BY 1, 2"
    assert rows(services, workspace.slug, revisions) == [
        ("mem-0001", 1, "seq:2"),
        ("mem-0001", 2, "mem-0002"),
        ("mem-0002", 1, None),
    ]
    assert sorted(rows(services, workspace.slug, OUTBOX)) == [
        ("mem-0001", 1, "pending"),
        ("mem-0001", 2, "pending"),
        ("mem-0002", 1, "pending"),
    ]


def test_a_link_to_a_folded_decision_points_to_the_card_of_its_group(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"), concept("A.", detail="regola di a"), concept("b", **requires("seq:2")))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1, 3))
    assert links(services, workspace.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}


def test_a_link_to_a_duplicate_points_to_the_card_that_it_joined(services: Services, known: Workspace) -> None:
    tell(services, known.slug, concept("b", **requires("seq:2")), concept("ablazione"), session="s2")
    settle(services, known.slug, offer(services, known.slug, "s2"), select=(1, 2))
    assert links(services, known.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}


def test_a_link_to_what_was_declined_stays_as_it_was_written(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, *LINKED)
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,), decline=(2,))
    assert links(services, workspace.slug) == {"mem-0001": ["seq:2"]}


def test_a_link_to_a_card_stays_as_it_was_written(services: Services, known: Workspace) -> None:
    tell(services, known.slug, concept("b", **requires("mem-0001")), session="s2")
    settle(services, known.slug, offer(services, known.slug, "s2"), select=(1,))
    assert links(services, known.slug)["mem-0002"] == ["mem-0001"]


def test_a_seq_in_a_link_is_read_in_the_session_that_wrote_it(services: Services, workspace: Workspace) -> None:
    """A card with sources in two sessions: the numbers of the second one mean other decisions."""
    tell(services, workspace.slug, *LINKED, session="s1")
    settle(services, workspace.slug, offer(services, workspace.slug, "s1"), select=(1,))
    tell(services, workspace.slug, concept("a"), concept("tutt'altro"), session="s2")
    joined = offer(services, workspace.slug, "s2")
    settle(services, workspace.slug, joined, select=(1,))
    settle(services, workspace.slug, joined, select=(2,))
    assert links(services, workspace.slug) == {"mem-0001": ["seq:2"], "mem-0002": []}
    settle(services, workspace.slug, offer(services, workspace.slug, "s1"), select=(2,))
    assert links(services, workspace.slug)["mem-0001"] == ["mem-0003"]


# --- ids -----------------------------------------------------------------------------------------------------------


def test_ids_are_not_used_again_and_grow_past_four_digits(services: Services, known: Workspace) -> None:
    with services.database.transaction(Role.REVIEWER, known.slug) as tx:
        first = cards.get_many(tx, known.slug, ["mem-0001"])["mem-0001"]
        cards.insert(tx, known.slug, "mem-9999", first.model_copy(update={"detail": "altro"}))
    tell(services, known.slug, concept("b"), session="s2")
    decision = settle(services, known.slug, offer(services, known.slug, "s2"), select=(1,))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-10000")]
