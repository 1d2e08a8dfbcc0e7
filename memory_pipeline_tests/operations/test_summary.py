"""Summaries of sessions as they stand in the registry, by either door and from the files of an older system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from memory_pipeline.core.errors import BadInput, UnknownSession, UnknownWorkspace
from memory_pipeline.core.ledger import EntryType
from memory_pipeline.core.summary import Concept, Hidden, Record, SessionSummary
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.summary import summarise_session, summarise_workspace
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import revise
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

OPENED = {"type_": EntryType.SESSION_OPENED, "question": "Quante ablazioni per anno?"}
LEDGER = "SELECT * FROM ledger_entries ORDER BY entry_id"


def linked(table: str) -> dict[str, Any]:
    """A table that the question's schema linking took up."""
    return {"type_": EntryType.TABLE_PROMOTED, "subject": table}


def seqs(concepts: tuple[Concept, ...]) -> list[tuple[int, ...]]:
    return [one.seqs for one in concepts]


def as_json(summary: SessionSummary) -> dict[str, Any]:
    return summary.model_dump(mode="json")


def test_a_session_is_told_from_its_decisions_to_what_waits(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    tell(
        services, slug, OPENED, linked("fact_procedure"), linked("ordini"), concept("ablazione"), concept("degenza"),
        concept(" Ablazione"), concept("Ordini"), concept("fact_ricovero"), concept("recidiva"), concept("errore"),
        retraction(10),
    )  # fmt: skip
    settle(services, slug, offer(services, slug), select=(4, 6), decline=(5,))

    summary = summarise_session(services, slug, "s1")

    assert summary.question == "Quante ablazioni per anno?"
    assert [(one.seqs, one.subject, one.detail, one.record, one.card_id) for one in summary.approved] == [
        ((4, 6), "ablazione", "regola di ablazione", Record.CARD, "mem-0001")
    ]
    assert (seqs(summary.declined), seqs(summary.pending)) == ([(5,)], [(9,)])
    assert (summary.undecided, summary.drift, summary.hidden) == (2, 0, {Hidden.TABLE: 2})
    assert summary.undecided == len(offered(offer(services, slug)))


def test_a_folded_group_is_told_as_one(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, *(concept("x", detail="d") for _ in range(3)), concept("y", detail="d"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(2,), decline=(4,))

    summary = summarise_session(services, workspace.slug, "s1")

    assert (seqs(summary.approved), seqs(summary.declined)) == ([(1, 2, 3)], [(4,)])


def test_the_file_of_the_session_is_read_first(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=3, subject="a"))
    assert seqs(summarise_session(services, workspace.slug, "s1").pending) == [(3,)]
    drop(services, workspace.slug, line(seq=5, subject="b"))
    assert seqs(summarise_session(services, workspace.slug, "s1").pending) == [(3,), (5,)]


def test_a_file_of_an_older_system_is_read_with_todays_rules_and_stays_as_it_is(
    services: Services, workspace: Workspace
) -> None:
    file = drop(
        services,
        workspace.slug,
        line(seq=1, type="table_promoted", subject="fact_procedure"),
        line(seq=2, subject="ablazione", detail="su fact_procedure"),
        line(seq=3, subject="fact_procedure", detail="la tabella delle procedure"),
        line(seq=4, subject="degenza"),
        line(seq=5, type="column_promoted", subject="fact_procedure.cod_paz"),
        *(
            line(seq=seq, type=f"memory_{verdict}", subject=None, detail=f"seq:{target}", phase="F8")
            for seq, verdict, target in [
                (6, "promoted", 1),
                (7, "promoted", 2),
                (8, "promoted", 3),
                (9, "promotion_declined", 4),
                (10, "promotion_declined", 5),
                (11, "promoted", 99),
            ]
        ),
    )
    before = file.read_bytes()
    summary = summarise_session(services, workspace.slug, "s1")
    stored = rows(services, workspace.slug, LEDGER)

    assert [(one.seqs, one.detail, one.record) for one in summary.approved] == [
        ((2,), "su fact_procedure", Record.HISTORY)
    ]
    assert (seqs(summary.declined), seqs(summary.pending), summary.drift) == ([(4,)], [(2,)], 1)
    assert summary.hidden == {Hidden.TABLE: 1, Hidden.NO_CONCEPT: 3}
    assert summarise_session(services, workspace.slug, "s1") == summary
    assert (file.read_bytes(), rows(services, workspace.slug, LEDGER)) == (before, stored)
    assert rows(services, workspace.slug, "SELECT FROM cards") == []


def test_after_a_rollback_a_refusal_is_open_again_and_a_card_stays(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"), concept("b"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,), decline=(2,))
    tell(services, workspace.slug, rolled_back("F8"))

    summary = summarise_session(services, workspace.slug, "s1")
    assert (seqs(summary.approved), seqs(summary.declined), seqs(summary.pending)) == ([(1,)], [], [(2,)])
    assert summary.hidden == {Hidden.STALE: 1}

    tell(services, workspace.slug, rolled_back("F1"))
    summary = summarise_session(services, workspace.slug, "s1")
    assert [(one.seqs, one.card_id, one.status) for one in summary.approved] == [((1,), "mem-0001", "stale")]
    assert summary.undecided == 0


def test_a_card_that_was_deleted_since_is_told_as_deleted(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    revise(services, workspace.slug, "mem-0001", status="deleted")

    assert [one.card_status for one in summarise_session(services, workspace.slug, "s1").approved] == ["deleted"]


def test_a_memory_chosen_as_it_is_is_known_and_waits_for_nobody(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    tell(services, workspace.slug, concept("a", rationale="scelta mem-0001"), session="s2")

    summary = summarise_session(services, workspace.slug, "s2")

    assert [(one.seqs, one.card_id) for one in summary.known] == [((1,), "mem-0001")]
    assert summary.undecided == len(offered(offer(services, workspace.slug, "s2"))) == 0


def test_a_session_or_workspace_that_is_not_there_is_named(services: Services, workspace: Workspace) -> None:
    with pytest.raises(UnknownSession):
        summarise_session(services, workspace.slug, "s9")
    with pytest.raises(BadInput):
        summarise_session(services, workspace.slug, "../s1")
    with pytest.raises(UnknownWorkspace):
        summarise_session(services, f"{workspace.slug}x", "s1")


def test_a_retired_workspace_is_told_as_it_was_left(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1, subject="a"))
    summarise_session(services, workspace.slug, "s1")
    drop(services, workspace.slug, line(seq=2, subject="b"))
    retire(services, workspace.slug)

    assert seqs(summarise_session(services, workspace.slug, "s1").pending) == [(1,)]


# --- a whole workspace -------------------------------------------------------------------------------------------


def test_a_workspace_is_told_newest_first_and_its_figures_are_of_all_sessions(
    services: Services, make_workspace: MakeWorkspace
) -> None:
    slug, other = make_workspace().slug, make_workspace().slug
    for number in range(1, 6):
        tell(services, slug, concept(f"a {number}"), concept(f"b {number}"), concept("c"), session=f"s{number}")
    settle(services, slug, offer(services, slug, "s1"), select=(1, 3), decline=(2,))
    settle(services, slug, offer(services, slug, "s2"), select=(3,))
    tell(services, other, concept("x"), session="s1")

    told = summarise_workspace(services, slug, shown=2)

    assert [one.session for one in told.newest] == ["s5", "s4"]
    assert [(session, one.seqs) for session, one in told.waiting] == [("s5", (1,)), ("s5", (2,))]
    assert (told.sessions, told.cards, told.approved, told.declined) == (5, 2, 3, 1)
    assert (told.undecided, told.undecided_sessions, told.hidden, told.drift) == (11, 4, 0, 0)
    everything = summarise_workspace(services, slug)
    assert [as_json(one) for one in everything.newest] == [
        as_json(summarise_session(services, slug, f"s{number}")) for number in range(5, 0, -1)
    ]
    assert everything.data_version == told.data_version


def test_the_version_of_a_workspace_changes_with_what_is_told(services: Services, workspace: Workspace) -> None:
    versions = [summarise_workspace(services, workspace.slug).data_version]
    for change in (
        lambda: tell(services, workspace.slug, concept("a"), concept("b")),
        lambda: settle(services, workspace.slug, offer(services, workspace.slug), select=(1,)),
        lambda: settle(services, workspace.slug, offer(services, workspace.slug), decline=(2,)),
        lambda: tell(services, workspace.slug, rolled_back("F8")),
    ):
        change()
        versions.append(summarise_workspace(services, workspace.slug).data_version)

    assert len(set(versions)) == len(versions)
    tell(services, workspace.slug, {"type_": EntryType.COLUMN_EXCLUDED, "subject": "fact_x.y"})
    assert summarise_workspace(services, workspace.slug).data_version == versions[-1]


def test_many_sessions_cost_no_more_queries_than_few(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queries_for(sessions: int) -> int:
        executed: list[object] = []
        with monkeypatch.context() as patched:
            for kind in (psycopg.Cursor, psycopg.ServerCursor):
                patched.setattr(kind, "execute", _counting(kind.execute, executed))
            assert summarise_workspace(services, workspace.slug).sessions == sessions
        return len(executed)

    tell(services, workspace.slug, concept("a", rationale="mem-0001"), session="s0")
    few = queries_for(1)
    for number in range(1, 40):
        tell(services, workspace.slug, concept("a", rationale="mem-0001"), session=f"s{number}")
    assert queries_for(40) == few


def _counting(execute: Callable[..., Any], executed: list[object]) -> Callable[..., Any]:
    def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        executed.append(query)
        return execute(cursor, query, *arguments, **options)

    return counted
