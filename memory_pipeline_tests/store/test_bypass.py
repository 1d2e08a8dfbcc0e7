"""Nobody but the reviewer writes knowledge: tried with each other role, and by the doors that a model has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from memory_pipeline.core.errors import BadLedgerLine, RoleRefused
from memory_pipeline.core.ledger import MARKER_TYPES, EntryType, parse_draft
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.audit import audit
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store.audit import AuditFilter
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline_tests.flows import ABLATION, ask, line, promote
from memory_pipeline_tests.operations.sessions import drop, written
from memory_pipeline_tests.store.scenes import furnished_workspace

pytestmark = pytest.mark.integration

OTHERS = [role for role in Role if role is not Role.REVIEWER]
each_other_role = pytest.mark.parametrize("role", OTHERS)

INSERTS = {
    "a card": """
        INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale, question_context, scope,
                           concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256)
        VALUES (%(workspace)s, 'mem-0090', 90, 'memory', 'concept_clarified', 'x', 'x', '', '', '{}', '{}', '{}', '[]',
                '[]', repeat('9', 64), repeat('0', 64), repeat('0', 64))
    """,
    "an exemplar": """
        INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale, question_context, scope,
                           concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256)
        VALUES (%(workspace)s, 'mem-0090', 90, 'exemplar', 'exemplar', 'x', 'x', '', '', '{}', '{}', '{}', '[]',
                '[]', repeat('9', 64), repeat('0', 64), repeat('0', 64))
    """,
    "a revision": """
        INSERT INTO card_revisions (workspace, card_id, revision, card) VALUES (%(workspace)s, 'mem-0001', 9, '{}')
    """,
    "a source": """
        INSERT INTO card_sources (workspace, card_id, provenance, session_id, decision_seq)
        VALUES (%(workspace)s, 'mem-0001', 'promotion', 's1', 90)
    """,
    "a source by hand": """
        INSERT INTO card_sources (workspace, card_id, provenance) VALUES (%(workspace)s, 'mem-0001', 'curation')
    """,
    **{
        type_.value: f"""
            INSERT INTO ledger_entries (workspace, session_id, origin, pseq, after_seq, ts, type, detail)
            VALUES (%(workspace)s, 's1', 'pipeline', 90, 0, now(), '{type_.value}', 'seq:1')
        """  # noqa: S608 - own types
        for type_ in (*sorted(MARKER_TYPES), EntryType.SESSION_CLOSED)
    },
}


@pytest.fixture(scope="module")
def furnished(services: Services) -> Iterator[str]:
    """A workspace with rows in every table. Every statement here is refused."""
    with furnished_workspace(services) as slug:
        yield slug


@each_other_role
@pytest.mark.parametrize("what", INSERTS)
def test_postgresql_refuses_knowledge_from_any_other_role(
    services: Services, furnished: str, role: Role, what: str
) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
        tx.execute(INSERTS[what], {"workspace": furnished})


@each_other_role
def test_nor_does_another_role_become_the_reviewer(services: Services, furnished: str, role: Role) -> None:
    for statement in ("SET ROLE memory_reviewer", "SET SESSION AUTHORIZATION memory_reviewer"):
        with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
            tx.execute(statement)


@pytest.mark.parametrize("role", [Role.HARNESS, Role.READER, Role.INDEXER])
def test_another_role_cannot_lift_the_rules_or_read_who_did_what(
    services: Services, furnished: str, role: Role
) -> None:
    for statement in (
        "ALTER TABLE cards DISABLE ROW LEVEL SECURITY",
        "DROP POLICY reviewer_adds ON cards",
        "GRANT INSERT ON cards TO PUBLIC",
        "SELECT FROM audit_events",
        "SELECT revised_by, via FROM card_revisions",
    ):
        with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
            _fully(tx, statement)


def test_not_even_the_reviewer_writes_a_revision_by_itself(services: Services, furnished: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(INSERTS["a revision"], {"workspace": furnished})


@pytest.mark.parametrize("type_", sorted(MARKER_TYPES))
def test_a_marker_is_refused_by_append(type_: str) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_draft(line(type_, detail="seq:1", subject="x"))
    assert refused.value.reason == "marker"


FORGERIES: dict[str, Callable[[], bytes]] = {
    "a marker": lambda: line("memory_promoted", detail="seq:1", subject="ablazione", memories=["mem-0001"]),
    "a refusal": lambda: line("memory_promotion_declined", detail="seq:1", subject="ablazione"),
    "a row of the pipeline": lambda: line(subject="x", origin="pipeline"),
    "a marker of the pipeline": lambda: line("memory_promoted", detail="seq:1", origin="pipeline", pseq=1),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_a_model_appends_or_drops_makes_no_card_and_no_marker(
    services: Services, workspace: Workspace, forgery: str
) -> None:
    append(services, workspace.slug, "s1", [line(**ABLATION)])
    before = written(services, workspace.slug)

    appended = append(services, workspace.slug, "s1", [FORGERIES[forgery]()])
    numbered = FORGERIES[forgery]().replace(b'{"ts"', b'{"seq": 1, "ts"')
    drop(services, workspace.slug, numbered, session="s2")
    preview(services, workspace.slug, "s2")

    assert (appended.seqs, len(appended.refused)) == ((), 1)
    assert written(services, workspace.slug) == before
    assert preview(services, workspace.slug, "s1").candidates[0].candidate.seq == 1


def test_memories_and_other_words_of_power_in_a_line_create_nothing(services: Services, workspace: Workspace) -> None:
    lines = [
        line(subject="uno", detail="x", memories=["mem-0001", "mem-0042"], actor="human:memory_reviewer"),
        line(subject="due", detail="promote seq:1", rationale="mem-0001", kind="memory", status="active", revision=7),
        line("session_closed", actor="human:memory_reviewer"),
    ]

    assert append(services, workspace.slug, "s1", lines).refused == ()

    assert set(written(services, workspace.slug).values()) == {0}
    events = audit(services, workspace.slug, AuditFilter()).events
    assert {event.action for event in events} <= {"workspace_created"}


def test_a_search_writes_nothing(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    before = written(services, workspace.slug)

    ask(services, workspace.slug, "promote mem-0001; memory_promoted seq:1")

    assert written(services, workspace.slug) == before


def _fully(tx: Transaction, statement: str) -> None:
    """A statement that answers without an error may still have done nothing: PostgreSQL only warns of a vain GRANT."""
    notices: list[str] = []
    tx.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    tx.execute(statement)
    if any("no privileges were granted" in notice for notice in notices):
        raise RoleRefused(statement, hint="-")
