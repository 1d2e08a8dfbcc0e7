"""Short ways to fill a session, by either door, and to look at what the gate wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from memory_pipeline.core.ledger import EntryType
from memory_pipeline.operations.decide import Decision, Outcome, decide
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.preview import Preview, preview
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store.database import Role
from memory_pipeline_tests.flows import line

Fields = Mapping[str, Any]


def concept(subject: str, **fields: Any) -> dict[str, Any]:
    """A clarified concept, of phase F1."""
    return {"subject": subject, "detail": f"regola di {subject}", **fields}


def retraction(seq: int, **fields: Any) -> dict[str, Any]:
    """A retraction of a decision, of phase F1."""
    return {"type_": EntryType.DECISION_RETRACTED, "detail": f"seq:{seq}", **fields}


def rolled_back(phase: str) -> dict[str, Any]:
    """A rollback to a phase."""
    return {"type_": EntryType.PHASE_ROLLED_BACK, "detail": f"phase:{phase}"}


def reopened(phase: str) -> dict[str, Any]:
    """A reopening of a phase."""
    return {"type_": EntryType.PHASE_REOPENED, "detail": f"phase:{phase}"}


def tell(services: Services, workspace: str, *entries: Fields, session: str = "s1") -> tuple[int, ...]:
    """Append entries to a session, each of which has to be taken; returns their seqs."""
    appended = append(services, workspace, session, [line(**entry) for entry in entries])
    assert appended.refused == ()
    return appended.seqs


def drop(services: Services, workspace: str, *lines: bytes, session: str = "s1", end: bytes = b"\n") -> Path:
    """Add lines to a session's file in the inbox; returns the file."""
    file = services.settings.inbox_path / workspace / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        stream.write(b"".join(text + end for text in lines))
    return file


def offer(services: Services, workspace: str, session: str = "s1") -> Preview:
    """A preview that shows everything."""
    return preview(services, workspace, session, limit=1000)


def offered(shown: Preview) -> list[tuple[int, ...]]:
    """The seqs of each candidate, its own first."""
    return [one.candidate.seqs for one in shown.candidates]


def preview_id(shown: Preview) -> UUID:
    """The id of a preview that has candidates."""
    assert shown.preview_id is not None
    return shown.preview_id


def settle(
    services: Services, workspace: str, shown: Preview, *, select: tuple[int, ...] = (), decline: tuple[int, ...] = ()
) -> Decision:
    """Decide on a preview."""
    return decide(services, workspace, preview_id(shown), selected=select, declined=decline)


def rows(services: Services, workspace: str, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """What a query gives the owner, row by row."""
    with services.database.transaction(Role.OWNER, workspace) as tx:
        return [tuple(row.values()) for row in tx.execute(query, parameters)]


def change(services: Services, workspace: str, statement: str, *parameters: Any) -> None:
    """Let the owner change something behind the gate's back."""
    with services.database.transaction(Role.OWNER, workspace) as tx:
        assert tx.execute(statement, parameters).rowcount > 0


def retire(services: Services, workspace: str) -> None:
    """Retire a workspace."""
    change(services, workspace, "UPDATE workspaces SET status = 'retired'")


WRITTEN = {
    "cards": "SELECT count(*) FROM cards",
    "revisions": "SELECT count(*) FROM card_revisions",
    "sources": "SELECT count(*) FROM card_sources",
    "markers": "SELECT count(*) FROM ledger_entries WHERE origin = 'pipeline'",
    "outbox": "SELECT count(*) FROM propagations",
}


def written(services: Services, workspace: str) -> dict[str, int]:
    """How many rows of each kind the gate has written so far."""
    return {kind: rows(services, workspace, query)[0][0] for kind, query in WRITTEN.items()}


MARKERS = """
SELECT pseq, after_seq, phase, type, detail, memories FROM ledger_entries WHERE origin = 'pipeline' ORDER BY pseq
"""
SOURCES = "SELECT card_id, session_id, decision_seq, provenance FROM card_sources ORDER BY source_id"
OUTBOX = "SELECT card_id, revision, state FROM propagations ORDER BY propagation_id"


def requires(target: str) -> dict[str, Any]:
    """The field of a decision that requires another."""
    return {"links": [{"relation": "requires", "target": target}]}


def outcomes(decision: Decision) -> list[tuple[int, Outcome, str | None]]:
    """Seq, outcome and card of each verdict."""
    return [(verdict.seq, verdict.outcome, verdict.card_id) for verdict in decision.verdicts]


def links(services: Services, workspace: str) -> dict[str, list[str]]:
    """The targets to which each card points."""
    with services.database.transaction(Role.READER, workspace) as tx:
        found = cards.get_many(tx, workspace, cards.all_ids(tx, workspace))
    return {card.id: [link.target for link in card.links] for card in found.values()}
