"""Who did what and when, told from what nobody can rewrite."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_pipeline.core.cards import CardKind, Link, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.errors import BadInput, BadText, UnknownWorkspace
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.audit import audit
from memory_pipeline.operations.curate import add_card, delete_card, edit_card, link_card, set_kind, unlink_card
from memory_pipeline.operations.registry_import import apply_import, review_import
from memory_pipeline.operations.services import Services
from memory_pipeline.store.audit import Act, AuditEvent, AuditFilter
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import ABLATION, revise
from memory_pipeline_tests.operations.sessions import concept, offer, settle, tell
from memory_pipeline_tests.operations.test_registry import record, write

RELATED = Link(relation=Relation.RELATED, target="mem-0002")
ALL = AuditFilter()


def told(services: Services, workspace: str, wanted: AuditFilter = ALL) -> list[AuditEvent]:
    """Every act that passes a filter, but the making of the workspace."""
    events = audit(services, workspace, wanted, limit=1000).events
    return [event for event in events if event.action is not Act.WORKSPACE_CREATED]


@pytest.fixture
def busy(services: Services, workspace: Workspace, tmp_path: Path) -> str:
    """A workspace in which everything that a reviewer can do was done, each by a door of its own name."""
    slug = workspace.slug
    tell(services, slug, concept("uno"), concept("due"), concept("tre"))
    by = {door: replace(services, via=door) for door in ("cli", "http", "dagster", "import")}
    try:
        settle(by["cli"], slug, offer(services, slug), select=(1, 2), decline=(3,))
        edit_card(by["http"], slug, "mem-0001", 1, CardFields(detail="altro", concepts=("x",)))
        link_card(by["http"], slug, "mem-0001", 2, RELATED)
        unlink_card(by["http"], slug, "mem-0001", 3, RELATED)
        set_kind(by["dagster"], slug, "mem-0001", 4, CardKind.EXEMPLAR)
        delete_card(by["cli"], slug, "mem-0001", 5)
        add_card(by["cli"], slug, CardFields(**ABLATION))
        file = write(tmp_path / "r.jsonl", record(1), record(2, subject="due", detail="regola di due"), b"{", b"[]")
        apply_import(by["import"], slug, file, expect=review_import(services, slug, file).expect)
        revise(services, slug, "mem-0002", rationale="per SQL")
    finally:
        for opened in by.values():
            opened.close()
    return slug


def test_every_act_is_told_once_with_who_when_and_by_which_door(services: Services, busy: str) -> None:
    events = told(services, busy)

    assert [(event.action, event.card_id, event.via, event.changed) for event in events] == [
        ("promoted", "mem-0001", "cli", ()),
        ("promoted", "mem-0002", "cli", ()),
        ("declined", None, "cli", ()),
        ("edited", "mem-0001", "http", ("concepts", "detail")),
        ("linked", "mem-0001", "http", ("links",)),
        ("unlinked", "mem-0001", "http", ("links",)),
        ("kind_changed", "mem-0001", "dagster", ("kind", "type")),
        ("deleted", "mem-0001", "cli", ("status",)),
        ("added", "mem-0003", "cli", ()),
        ("import_refused", None, "import", ()),
        ("imported", "mem-0004", "import", ()),
        ("imported", "mem-0002", "import", ()),
        ("edited", "mem-0002", "sql", ("rationale",)),
    ]
    assert {event.actor for event in events} == {"memory_reviewer"}
    assert [(event.session_id, event.decision_seq, event.subject) for event in events[:3]] == [
        ("s1", 1, "uno"),
        ("s1", 2, "due"),
        ("s1", 3, "tre"),
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[10].note == "from old/mem-0001"
    assert events[9].note.startswith("2 lines of file ")


def test_the_acts_are_filtered_and_paged_in_one_order(services: Services, busy: str) -> None:
    events = told(services, busy)

    assert told(services, busy, AuditFilter(card_id="mem-0002")) == [e for e in events if e.card_id == "mem-0002"]
    assert told(services, busy, AuditFilter(session_id="s1")) == events[:3]
    assert told(services, busy, AuditFilter(since=events[5].at)) == events[5:]
    assert told(services, busy, AuditFilter(since=datetime.now(UTC) + timedelta(days=1))) == []
    whole = audit(services, busy, ALL)
    pages = [audit(services, busy, ALL, limit=4, offset=offset) for offset in range(0, whole.total, 4)]
    assert tuple(event for page in pages for event in page.events) == whole.events
    assert [page.remaining for page in pages] == [
        max(0, whole.total - 4 - offset) for offset in range(0, whole.total, 4)
    ]


def test_a_card_made_or_brought_back_past_the_code_is_told(services: Services, workspace: Workspace) -> None:
    add_card(services, workspace.slug, CardFields(**ABLATION))
    by_sql = """
        INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale, question_context, scope,
                           concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256)
        SELECT workspace, 'mem-0009', 9, 'exemplar', 'x', subject, '', '', '', '{}', '{}', '{}', '[]', '[]',
               fingerprint, dependencies_sha256, scope_sha256 FROM cards
        """
    with services.database.transaction(Role.REVIEWER, workspace.slug) as tx:
        tx.execute(by_sql)
    delete_card(services, workspace.slug, "mem-0001", 1)
    revise(services, workspace.slug, "mem-0001", status="active")

    events = told(services, workspace.slug)

    assert [(event.action, event.card_id, event.actor, event.via) for event in events] == [
        ("added", "mem-0001", "memory_reviewer", "python"),
        ("created", "mem-0009", "memory_reviewer", "sql"),
        ("deleted", "mem-0001", "memory_reviewer", "python"),
        ("status_changed", "mem-0001", "memory_reviewer", "sql"),
    ]


def test_a_workspace_tells_only_its_own_acts(services: Services, make_workspace: MakeWorkspace) -> None:
    first, second = make_workspace().slug, make_workspace().slug
    for slug in (first, second):
        add_card(services, slug, CardFields(**ABLATION))

    assert [event.card_id for event in told(services, first)] == ["mem-0001"]
    with services.database.transaction(Role.REVIEWER, first) as tx:
        seen = tx.execute("SELECT DISTINCT workspace FROM audit_events").fetchall()
    assert [row["workspace"] for row in seen] == [first]
    with pytest.raises(UnknownWorkspace):
        audit(services, "t-never-made", ALL)


def test_a_page_or_a_filter_that_cannot_be(services: Services, workspace: Workspace) -> None:
    for limit, offset in ((0, 0), (1, -1), (10_000, 0)):
        with pytest.raises(BadInput):
            audit(services, workspace.slug, ALL, limit=limit, offset=offset)
    with pytest.raises(BadText):
        audit(services, workspace.slug, AuditFilter(card_id="\x00"))
    assert told(services, workspace.slug, AuditFilter(card_id="'; DROP TABLE cards", session_id="x" * 10_000)) == []
