"""Closing a session: nothing that waits for a verdict is lost on the way."""

from __future__ import annotations

import pytest

from memory_pipeline.core.errors import CandidatesPending, RoleRefused, UnknownSession, WorkspaceRetired
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.close import close_session
from memory_pipeline.operations.ledger import show_ledger
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger
from memory_pipeline.store.database import Role
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import (
    concept,
    drop,
    offer,
    offered,
    retire,
    retraction,
    rolled_back,
    rows,
    settle,
    tell,
)

pytestmark = pytest.mark.integration

CLOSINGS = """
SELECT pseq, after_seq, phase, actor, extra -> 'left_pending' FROM ledger_entries
WHERE origin = 'pipeline' AND type = 'session_closed' ORDER BY pseq
"""


def test_twelve_concepts_are_all_decided_or_shown_as_pending_before_a_session_closes(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, *(concept(f"regola {number}", scope=[str(number)]) for number in range(12)))
    first = preview(services, workspace.slug, "s1")
    assert (len(first.candidates), first.remaining, first.pending) == (5, 7, 12)
    decision = settle(services, workspace.slug, first, select=(1, 2, 3), decline=(4, 5))
    assert decision.pending == 7
    with pytest.raises(CandidatesPending, match=r"7 undecided.*seq:6.*seq:12"):
        close_session(services, workspace.slug, "s1")
    assert rows(services, workspace.slug, CLOSINGS) == []
    rest = offer(services, workspace.slug)
    assert settle(services, workspace.slug, rest, decline=tuple(range(6, 13))).pending == 0
    closed = close_session(services, workspace.slug, "s1")
    assert (closed.closed_now, closed.left_pending, closed.ledger_seq) == (True, (), 12)
    assert rows(services, workspace.slug, CLOSINGS) == [(13, 12, "F8", f"human:{closed.closed_by}", [])]
    assert closed.closed_by == services.settings.reviewer_login


def test_what_was_left_is_named_and_can_still_be_decided(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"), concept("b"))
    shown = offer(services, workspace.slug)
    closed = close_session(services, workspace.slug, "s1", leave_pending=True)
    assert closed.left_pending == (1, 2)
    assert offered(offer(services, workspace.slug)) == [(1,), (2,)]
    assert settle(services, workspace.slug, shown, select=(1,), decline=(2,)).pending == 0
    again = close_session(services, workspace.slug, "s1")
    assert (again.closed_now, again.left_pending) == (True, ())
    assert [row[4] for row in rows(services, workspace.slug, CLOSINGS)] == [[1, 2], []]


def test_a_session_to_which_nothing_was_added_is_closed_once(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, {"type_": "session_opened", "question": "Quante?"})
    first = close_session(services, workspace.slug, "s1")
    second = close_session(services, workspace.slug, "s1")
    assert first.closed_now
    assert second == first.model_copy(update={"closed_now": False})
    assert len(rows(services, workspace.slug, CLOSINGS)) == 1


def test_a_closed_session_takes_lines_and_what_they_bring_waits_again(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    settle(services, workspace.slug, offer(services, workspace.slug), decline=(1,))
    close_session(services, workspace.slug, "s1")
    tell(services, workspace.slug, concept("b"), rolled_back("F8"))
    assert offered(offer(services, workspace.slug)) == [(1,), (2,)]
    with pytest.raises(CandidatesPending):
        close_session(services, workspace.slug, "s1")
    tell(services, workspace.slug, retraction(1), retraction(2))
    assert close_session(services, workspace.slug, "s1").closed_now


def test_a_closing_is_a_control_that_takes_nothing_out(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    close_session(services, workspace.slug, "s1")
    shown = show_ledger(services, workspace.slug, "s1").rows
    assert [(row.type, row.status) for row in shown] == [
        ("concept_clarified", "effective"),
        ("memory_promoted", "effective"),
        ("session_closed", "control"),
    ]


def test_the_file_of_the_session_is_read_before_it_is_closed(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1, type="session_opened", subject=...))
    offer(services, workspace.slug)
    drop(services, workspace.slug, line(seq=2))
    with pytest.raises(CandidatesPending, match="seq:2"):
        close_session(services, workspace.slug, "s1")
    drop(services, workspace.slug, line(seq=3, type="decision_retracted", subject=..., detail="seq:2"))
    assert close_session(services, workspace.slug, "s1").ledger_seq == 3


def test_what_is_known_already_or_only_a_table_does_not_keep_a_session_open(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, concept("a"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    tell(services, workspace.slug, concept("a", memories=["mem-0001"]), concept("fact_procedure"), session="s2")
    assert close_session(services, workspace.slug, "s2").left_pending == ()


@pytest.fixture
def told(services: Services, workspace: Workspace) -> str:
    """A workspace with an open session and nothing to decide."""
    tell(services, workspace.slug, {"type_": "session_opened", "question": "Quante?"})
    return workspace.slug


def test_only_a_reviewer_closes(services: Services, told: str) -> None:
    for role in (Role.HARNESS, Role.READER, Role.INDEXER):
        with pytest.raises(RoleRefused), services.database.transaction(role, told) as tx:
            ledger.insert_closing(tx, told, "s1", left_pending=())


def test_what_is_not_there_or_retired_is_not_closed(services: Services, told: str) -> None:
    with pytest.raises(UnknownSession):
        close_session(services, told, "s9")
    retire(services, told)
    with pytest.raises(WorkspaceRetired):
        close_session(services, told, "s1")
