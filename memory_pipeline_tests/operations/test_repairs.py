"""What a comparison finds in the registry itself: proposed to a human once, and taken back when it is gone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import errors

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.drift import DriftKind
from memory_pipeline.core.errors import BadInput, RoleRefused, UnknownWorkspace
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.consistency import check_consistency
from memory_pipeline.operations.inbox import read_inbox
from memory_pipeline.operations.reconcile import reconcile
from memory_pipeline.operations.repairs import Proposed, list_repairs, propose_repairs
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store.database import Role
from memory_pipeline.store.repairs import RepairProposal, RepairState
from memory_pipeline_tests.core.builders import content
from memory_pipeline_tests.flows import TS, revise
from memory_pipeline_tests.operations.sessions import concept, drop, offer, retraction, rolled_back, rows, settle, tell


@pytest.fixture
def promoted(services: Services, workspace: Workspace) -> str:
    """A workspace with mem-0001 and mem-0002, from seq 1 and 2 of s1."""
    tell(services, workspace.slug, concept("a"), concept("b"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1, 2))
    return workspace.slug


def proposed(services: Services, workspace: str, state: RepairState | None = RepairState.OPEN) -> list[RepairProposal]:
    return list(list_repairs(services, workspace, state).proposals)


def told(proposals: list[RepairProposal]) -> list[tuple[str, str | None, str | None, int | None, str]]:
    return [(one.kind, one.card_id, one.session_id, one.decision_seq, one.repair) for one in proposals]


def add_forbidden(services: Services, workspace: str) -> None:
    """An old record of a promoted table, past the gate: no constraint speaks of other kinds than memories."""
    record = content(type="table_promoted", subject="fact_procedure")
    with services.database.transaction(Role.REVIEWER, workspace) as tx:
        cards.insert(tx, workspace, cards.next_ids(tx, workspace, 1)[0], record, CardKind.EXEMPLAR)


def add_history(services: Services, workspace: str) -> None:
    """A session of old times whose file says what was promoted: a concept, a table, and nothing that is there."""
    entries = [
        {"type": "concept_clarified", "subject": "riammissione"},
        {"type": "table_promoted", "subject": "fact_ricoveri"},
        *({"type": "memory_promoted", "detail": detail} for detail in ("seq:1", "seq:2", "seq:9", "tutto")),
    ]
    lines = [json.dumps({"seq": seq, "ts": TS, **entry}).encode() for seq, entry in enumerate(entries, 1)]
    drop(services, workspace, *lines, session="old")
    read_inbox(services, workspace)


def test_a_card_whose_decisions_were_taken_back_is_proposed_once_and_stays(services: Services, promoted: str) -> None:
    tell(services, promoted, retraction(1))

    before = check_consistency(services, promoted)
    first, second = reconcile(services, promoted), reconcile(services, promoted)
    after = check_consistency(services, promoted)

    assert (before.counts, before.findings[0].card_id) == ({DriftKind.UNSUPPORTED_CARD: 1}, "mem-0001")
    assert first.proposals == Proposed(opened=1, standing=0, withdrawn=0)
    assert (second.proposals, second.found.counts) == (Proposed(opened=0, standing=1, withdrawn=0), {})
    assert (after.counts, after.proposed, after.consistent) == ({}, 1, True)
    (proposal,) = proposed(services, promoted)
    assert told([proposal]) == [("unsupported_card", "mem-0001", "s1", 1, "delete_card")]
    assert "s1:seq:1 is retracted" in proposal.reason
    assert rows(services, promoted, "SELECT DISTINCT status FROM cards") == [("active",)]


def test_a_finding_that_is_gone_closes_its_proposal_and_opens_another_when_it_comes_back(
    services: Services, promoted: str
) -> None:
    tell(services, promoted, retraction(1))
    propose_repairs(services, promoted)
    tell(services, promoted, retraction(3))

    withdrawn = propose_repairs(services, promoted)
    tell(services, promoted, retraction(4))
    again = propose_repairs(services, promoted)

    assert (withdrawn, again) == (
        Proposed(opened=0, standing=0, withdrawn=1),
        Proposed(opened=1, standing=0, withdrawn=0),
    )
    assert [one.state for one in proposed(services, promoted, None)] == [RepairState.OPEN, RepairState.OBSOLETE]
    assert len({one[0] for one in rows(services, promoted, "SELECT finding FROM repair_proposals")}) == 1


def test_a_deleted_card_needs_no_repair_any_more(services: Services, promoted: str) -> None:
    tell(services, promoted, rolled_back("F1"))
    assert propose_repairs(services, promoted).opened == 2
    revise(services, promoted, "mem-0001", status="deleted")
    assert propose_repairs(services, promoted) == Proposed(opened=0, standing=1, withdrawn=1)


def test_what_a_human_rejected_is_not_proposed_again(services: Services, promoted: str) -> None:
    tell(services, promoted, retraction(1))
    propose_repairs(services, promoted)
    with services.database.transaction(Role.OWNER, promoted) as tx:
        tx.execute(
            "INSERT INTO repair_outcomes (workspace, proposal_id, outcome) "
            "SELECT workspace, proposal_id, 'rejected' FROM repairs"
        )

    assert propose_repairs(services, promoted) == Proposed(opened=0, standing=1, withdrawn=0)
    assert (proposed(services, promoted), check_consistency(services, promoted).counts) == ([], {})


def test_records_that_may_not_be_and_markers_without_cards_are_proposed(services: Services, promoted: str) -> None:
    add_forbidden(services, promoted)
    add_history(services, promoted)

    counts = check_consistency(services, promoted).counts
    mended = reconcile(services, promoted)

    assert counts == {DriftKind.FORBIDDEN_TYPE: 1, DriftKind.MARKER_WITHOUT_CARD: 4}
    assert mended.proposals == Proposed(opened=5, standing=0, withdrawn=0)
    assert told(proposed(services, promoted))[::-1] == [
        ("forbidden_type", "mem-0003", None, None, "delete_card"),
        ("marker_without_card", None, "old", 1, "promote_decision"),
        ("marker_without_card", None, "old", 2, "dismiss"),
        ("marker_without_card", None, "old", 9, "dismiss"),
        ("marker_without_card", None, "old", None, "dismiss"),
    ]


def test_a_decision_that_history_calls_promoted_can_still_be_promoted_and_needs_no_repair_then(
    services: Services, workspace: Workspace
) -> None:
    add_history(services, workspace.slug)
    propose_repairs(services, workspace.slug)
    settle(services, workspace.slug, offer(services, workspace.slug, "old"), select=(1,))
    assert propose_repairs(services, workspace.slug) == Proposed(opened=0, standing=3, withdrawn=1)


def test_twenty_comparisons_at_once_propose_once(services: Services, promoted: str) -> None:
    tell(services, promoted, rolled_back("F1"))
    with ThreadPoolExecutor(4) as pool:
        opened = sum(one.opened for one in pool.map(lambda _: propose_repairs(services, promoted), range(20)))
    assert (opened, len(proposed(services, promoted, None))) == (2, 2)


def test_a_page_of_proposals_tells_what_remains(services: Services, promoted: str) -> None:
    add_history(services, promoted)
    propose_repairs(services, promoted)
    page = list_repairs(services, promoted, limit=3, offset=1)
    assert (page.total, page.remaining, [one.decision_seq for one in page.proposals]) == (4, 0, [9, 2, 1])
    with pytest.raises(BadInput):
        list_repairs(services, promoted, limit=0)
    with pytest.raises(UnknownWorkspace):
        list_repairs(services, "nowhere")


def test_nobody_rewrites_a_proposal_and_no_program_answers_one(services: Services, promoted: str) -> None:
    tell(services, promoted, retraction(1))
    propose_repairs(services, promoted)
    for statement in (
        "UPDATE repair_proposals SET reason = 'x'",
        "DELETE FROM repair_proposals",
    ):
        with pytest.raises(errors.RestrictViolation), services.database.transaction(Role.OWNER, promoted) as tx:
            tx.execute(statement)
    answer = (
        "INSERT INTO repair_outcomes (workspace, proposal_id, outcome) "
        "SELECT workspace, proposal_id, 'approved' FROM repairs"
    )
    with pytest.raises(RoleRefused), services.database.transaction(Role.INDEXER, promoted) as tx:
        tx.execute(answer)
