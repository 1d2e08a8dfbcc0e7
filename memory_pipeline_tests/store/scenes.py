"""Rows for the tests of the database itself, written as the role whose task they are."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from memory_pipeline.core.cards import CardContent, card_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.store import cards
from memory_pipeline.store.database import Database, Role
from memory_pipeline_tests.flows import ABLATION, READMISSION, promote


@contextlib.contextmanager
def furnished_workspace(services: Services) -> Iterator[str]:
    """A workspace with a row in every table: two cards from session s1, and what stands beside them."""
    slug = f"t-{uuid.uuid4().hex[:12]}"
    create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
    promote(services, slug, [{**ABLATION, "links": [{"relation": "related", "target": "seq:2"}]}, READMISSION])
    for role, statements in _ROWS.items():
        with services.database.transaction(role, slug) as tx:
            for statement in statements:
                tx.execute(statement, {"workspace": slug})
    yield slug
    with services.database.transaction(Role.INDEXER, slug) as tx:  # nothing waits for an index that never comes
        tx.execute("UPDATE propagations SET state = 'done', settled_at = now()")


def insert_card(database: Database, workspace: str, number: int, content: CardContent) -> None:
    """One card, past the gate, as the reviewer."""
    with database.transaction(Role.REVIEWER, workspace) as tx:
        cards.insert(tx, workspace, card_id(number), content)


def scalar(database: Database, role: Role, workspace: str | None, query: str, *parameters: Any) -> Any:
    """The one value that a query gives to a role in a workspace."""
    with database.transaction(role, workspace) as tx:
        row = tx.execute(query, parameters).fetchone()
    assert row is not None
    (value,) = row.values()
    return value


_FILES = (
    """
    INSERT INTO ledger_files (workspace, session_id, path, bytes_read, lines_read, chain)
    VALUES (%(workspace)s, 's1', 'x', 0, 0, repeat('0', 64))
    """,
    """
    INSERT INTO ledger_quarantine (workspace, session_id, source, line_number, reason, message, line, chain)
    VALUES (%(workspace)s, 's1', 'x', 1, 'shape', 'x', '', repeat('0', 64))
    """,
)
_RESETS = (
    """
    INSERT INTO ledger_resets (workspace, session_id, file_number, floor_seq, path, bytes_read, lines_read, chain,
                               reason)
    VALUES (%(workspace)s, 's1', 1, 0, 'x', 0, 0, repeat('0', 64), 'x')
    """,
)
_DERIVED = (
    """
    INSERT INTO quality_figures (workspace, generation, cards, sampled, golden, golden_sha256)
    VALUES (%(workspace)s, 1, 0, 0, 0, repeat('0', 64))
    """,
    """
    INSERT INTO collections (workspace, collection, alias, model, dimensions)
    VALUES (%(workspace)s, 'none__' || %(workspace)s, 'none', 'm', 1)
    """,
    """
    INSERT INTO generations (workspace, generation, collection, state, format, profile, profile_version, model,
                             model_digest, dimensions, analyser, language)
    VALUES (%(workspace)s, 1, 'none__' || %(workspace)s, 'failed', 1, 'p', 1, 'm', 'd', 1, 'a', 'l')
    """,
    "INSERT INTO projections (workspace, generation, card_id, revision) VALUES (%(workspace)s, 1, 'mem-0001', 1)",
    """
    INSERT INTO tombstones (workspace, generation, card_id, verify_until)
    VALUES (%(workspace)s, 1, 'mem-0002', 'infinity')
    """,
    "INSERT INTO registry_epoch (workspace) VALUES (%(workspace)s)",
    """
    INSERT INTO dense_embeddings (workspace, model_digest, text_sha256, dimensions, vector, pooled)
    VALUES (%(workspace)s, 'd', repeat('0', 64), 1, '\\x00000000', false)
    """,
    """
    INSERT INTO sparse_embeddings (workspace, analyser, text_sha256, indices, weights)
    VALUES (%(workspace)s, 'a', repeat('0', 64), '{1}', '{1}')
    """,
    """
    INSERT INTO repair_proposals (workspace, finding, occurrence, kind, reason, repair)
    VALUES (%(workspace)s, repeat('0', 64), 1, 'marker_without_card', 'x', 'dismiss')
    """,
    """
    INSERT INTO repair_outcomes (workspace, proposal_id, outcome)
    SELECT workspace, proposal_id, 'obsolete' FROM repair_proposals
    """,
)
_REVIEWED = (
    """
    INSERT INTO golden_queries (workspace, question, question_sha256, database, expected)
    VALUES (%(workspace)s, 'x', repeat('0', 64), 'x', '{mem-0001}')
    """,
    """
    INSERT INTO import_quarantine (workspace, file_sha256, line_number, reason, message, line)
    VALUES (%(workspace)s, repeat('0', 64), 1, 'shape', 'x', '')
    """,
)
_ROWS = {Role.HARNESS: _FILES, Role.OWNER: _RESETS, Role.INDEXER: _DERIVED, Role.REVIEWER: _REVIEWED}
