"""What a reviewer is shown: every candidate of the session, as the ledger stands now."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from memory_pipeline.core.candidates import LeftOut
from memory_pipeline.core.errors import BadInput, LedgerTampered, UnknownSession, UnknownWorkspace, WorkspaceRetired
from memory_pipeline.core.ledger import EntryType
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.services import Services
from memory_pipeline.store import previews
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import revise
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import (
    Fields,
    concept,
    drop,
    offer,
    offered,
    preview_id,
    reopened,
    retire,
    retraction,
    rolled_back,
    rows,
    settle,
    tell,
)

pytestmark = pytest.mark.integration

Reason = LeftOut.Reason


# --- what is offered ---------------------------------------------------------------------------------------------


def test_only_effective_clarified_concepts_are_offered_and_the_others_are_told_with_their_reason(
    services: Services, workspace: Workspace
) -> None:
    types = [
        {"type_": type_, "subject": "x", "detail": ""} for type_ in EntryType if type_.startswith(("table", "col"))
    ]
    tell(
        services,
        workspace.slug,
        *types,  # 1 to 4
        concept("a"),
        concept("fact_procedure"),
        concept("b"),
        retraction(7),
        concept("c", phase="F3"),
        rolled_back("F3"),
        concept("d"),
        concept("D."),
    )
    shown = offer(services, workspace.slug)
    assert offered(shown) == [(5,), (11, 12)]
    assert [(left.seq, left.reason) for left in shown.left_out] == [
        (6, Reason.TABLE_NAME),
        (7, Reason.RETRACTED),
        (9, Reason.STALE),
    ]


def test_what_was_decided_is_not_offered_again(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"), concept("b"), concept("c"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,), decline=(2,))
    shown = offer(services, workspace.slug)
    assert offered(shown) == [(3,)]
    assert [(left.seq, left.reason, left.card_id) for left in shown.left_out] == [
        (1, Reason.ALREADY_PROMOTED, "mem-0001"),
        (2, Reason.DECLINED, None),
    ]


@pytest.mark.parametrize(
    ("later", "again"),
    [
        pytest.param(rolled_back("F8"), [(2,)], id="F8 rolled back: the refusal is stale"),
        pytest.param(reopened("F7"), [(2,)], id="F7 reopened: the refusal is stale"),
        pytest.param(reopened("F8"), [], id="F8 reopened: the refusal stands"),
        pytest.param(rolled_back("F2"), [(2,)], id="F2 rolled back: the refusal is stale, the concept of F1 is not"),
        pytest.param(rolled_back("F1"), [], id="F1 rolled back: the concept itself is stale"),
    ],
)
def test_a_declined_concept_comes_again_only_if_the_refusal_is_stale_and_a_promoted_one_never(
    services: Services, workspace: Workspace, later: Fields, again: list[tuple[int, ...]]
) -> None:
    tell(services, workspace.slug, concept("a"), concept("b"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,), decline=(2,))
    tell(services, workspace.slug, later)
    assert offered(offer(services, workspace.slug)) == again


def test_a_refusal_in_a_file_counts_and_a_promotion_without_a_card_does_not(
    services: Services, workspace: Workspace
) -> None:
    drop(
        services,
        workspace.slug,
        line(seq=1, subject="a"),
        line(seq=2, subject="b"),
        line(seq=3, type="memory_promotion_declined", phase="F8", detail="seq:1"),
        line(seq=4, type="memory_promoted", phase="F8", detail="seq:2", memories=["mem-0001"]),
    )
    assert offered(offer(services, workspace.slug)) == [(2,)]
    drop(services, workspace.slug, line(seq=5, type="phase_rolled_back", detail="phase:F8"))
    assert offered(offer(services, workspace.slug)) == [(1,), (2,)]


def test_a_refusal_of_the_highest_seq_sticks(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=10**18 - 1))
    shown = offer(services, workspace.slug)
    settle(services, workspace.slug, shown, decline=(10**18 - 1,))
    assert offer(services, workspace.slug).pending == 0


# --- the inbox first ---------------------------------------------------------------------------------------------


def test_the_file_of_the_session_is_read_first_and_the_ledger_is_named_by_its_seq(
    services: Services, workspace: Workspace
) -> None:
    drop(services, workspace.slug, line(seq=3, subject="a"))
    assert (offer(services, workspace.slug).ledger_seq, offered(offer(services, workspace.slug))) == (3, [(3,)])
    drop(services, workspace.slug, line(seq=8, subject="b"))
    assert (offer(services, workspace.slug).ledger_seq, offered(offer(services, workspace.slug))) == (8, [(3,), (8,)])


def test_nothing_is_offered_from_a_file_that_was_tampered_with(services: Services, workspace: Workspace) -> None:
    file = drop(services, workspace.slug, line(seq=1))
    offer(services, workspace.slug)
    file.write_bytes(line(seq=1, subject="altro") + b"\n")
    with pytest.raises(LedgerTampered):
        offer(services, workspace.slug)


# --- the snapshot ------------------------------------------------------------------------------------------------


def test_two_previews_of_one_ledger_show_the_same(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("b"), concept("a", links=[{"relation": "requires", "target": "seq:1"}]))
    one, other = offer(services, workspace.slug), offer(services, workspace.slug)
    assert one.preview_id != other.preview_id
    assert one.candidates == other.candidates


def test_a_page_shows_some_and_the_snapshot_holds_all(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, *(concept(f"concetto {number}") for number in range(1, 13)))
    pages = [preview(services, workspace.slug, "s1", offset=offset) for offset in (0, 5, 10, 12, 99)]
    assert [(len(page.candidates), page.remaining, page.pending) for page in pages] == [
        (5, 7, 12),
        (5, 2, 12),
        (2, 0, 12),
        (0, 0, 12),
        (0, 0, 12),
    ]
    assert [seqs[0] for page in pages for seqs in offered(page)] == list(range(1, 13))
    assert settle(services, workspace.slug, pages[0], select=(12,)).pending == 11


@pytest.mark.parametrize("page", [{"limit": 0}, {"limit": -1}, {"offset": -1}])
def test_a_page_that_cannot_be_is_refused(services: Services, workspace: Workspace, page: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="cannot be shown"):
        preview(services, workspace.slug, "s1", **page)


def test_the_snapshot_is_stored_as_shown_and_expires_a_day_later(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, {"type_": "session_opened", "question": "Quante?"}, concept("a"), concept("A"))
    shown = offer(services, workspace.slug)
    with services.database.transaction(Role.REVIEWER, workspace.slug) as tx:
        stored = previews.get(tx, workspace.slug, preview_id(shown))
    assert stored.candidates == tuple(one.candidate for one in shown.candidates)
    assert stored.candidates[0].content.question_context == "Quante?"
    assert (stored.session_id, stored.ledger_seq, stored.expires_at) == ("s1", 3, shown.expires_at)
    assert not stored.expired
    ((lifetime, by),) = rows(services, workspace.slug, "SELECT expires_at - created_at, created_by FROM previews")
    assert (lifetime, by) == (timedelta(hours=24), "memory_harness")


def test_with_nothing_to_decide_nothing_is_stored(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, {"type_": "table_promoted", "subject": "fact_procedure"})
    shown = offer(services, workspace.slug)
    assert (shown.preview_id, shown.expires_at, shown.pending, shown.candidates) == (None, None, 0, ())
    assert rows(services, workspace.slug, "SELECT FROM previews") == []


# --- what the registry knows of the same text --------------------------------------------------------------------


def known(services: Services, workspace: str, session: str) -> list[tuple[str | None, str | None]]:
    return [(one.duplicate_of, one.previously) for one in offer(services, workspace, session).candidates]


def test_an_active_card_that_says_the_same_is_named(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("ablazione"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    tell(services, workspace.slug, concept(" ABLAZIONE."), concept("altro"), session="s2")
    assert known(services, workspace.slug, "s2") == [("mem-0001", None), (None, None)]


def test_a_deleted_card_that_said_the_same_is_named_as_what_was_before(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, concept("ablazione"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    revise(services, workspace.slug, "mem-0001", status="deleted")
    tell(services, workspace.slug, concept("ablazione"), session="s2")
    assert known(services, workspace.slug, "s2") == [(None, "mem-0001")]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"scope": ["per anno"]}, id="another scope"),
        pytest.param({"dependencies": [{"database": "cardio"}]}, id="another place"),
        pytest.param({"detail": "regola di ablazione 2"}, id="another text"),
    ],
)
def test_a_card_that_says_it_elsewhere_or_otherwise_is_none(
    services: Services, workspace: Workspace, other: dict[str, Any]
) -> None:
    tell(services, workspace.slug, concept("ablazione"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    tell(services, workspace.slug, concept("ablazione", **other), session="s2")
    assert known(services, workspace.slug, "s2") == [(None, None)]


def test_a_card_of_another_workspace_is_none(services: Services, make_workspace: MakeWorkspace) -> None:
    one, other = make_workspace().slug, make_workspace().slug
    tell(services, one, concept("ablazione"))
    settle(services, one, offer(services, one), select=(1,))
    tell(services, other, concept("ablazione"), session="s2")
    assert known(services, other, "s2") == [(None, None)]


# --- what cannot be shown ----------------------------------------------------------------------------------------


def test_a_session_or_a_workspace_that_is_not_there_is_named(services: Services, workspace: Workspace) -> None:
    with pytest.raises(UnknownSession):
        offer(services, workspace.slug, "s9")
    with pytest.raises(UnknownWorkspace):
        offer(services, f"t-{uuid.uuid4().hex[:12]}")
    with pytest.raises(BadInput):
        offer(services, workspace.slug, "../s1")


def test_a_retired_workspace_offers_nothing(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    retire(services, workspace.slug)
    with pytest.raises(WorkspaceRetired):
        offer(services, workspace.slug)
