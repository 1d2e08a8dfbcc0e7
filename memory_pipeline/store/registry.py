"""The registry as a file has it: cards with their sources, streamed in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.registry import RegistryRecord, RegistrySource, record_of
from memory_pipeline.store import cards
from memory_pipeline.store.database import Transaction

_AT_ONCE = 500


def stream(tx: Transaction, workspace: str) -> Iterator[RegistryRecord]:
    """Every card but the deleted ones, by number: one statement, so one snapshot, whatever is written meanwhile."""
    with tx.cursor("registry") as cursor:
        cursor.itersize = _AT_ONCE
        cursor.execute(
            f"""
            SELECT {cards.COLUMNS}, ARRAY(
                SELECT jsonb_build_object(
                    'provenance', s.provenance, 'session', s.session_id, 'seq', s.decision_seq,
                    'decided_at', s.decided_at, 'decided_by', s.decided_by, 'via', s.via, 'imported', s.imported
                )
                FROM card_sources AS s
                WHERE s.workspace = c.workspace AND s.card_id = c.card_id ORDER BY s.source_id
            ) AS sources
            FROM cards AS c WHERE c.workspace = %s AND c.status <> 'deleted' ORDER BY c.number
            """,  # noqa: S608 - own columns
            (workspace,),
        )
        for row in cursor:
            yield _record(row)


def _record(row: dict[str, Any]) -> RegistryRecord:
    sources = [RegistrySource.model_validate(source) for source in row.pop("sources")]
    return record_of(MemoryRecord.model_validate(row), sources)
