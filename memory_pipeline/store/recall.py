"""What a search reads of the registry: current cards with all that is needed to judge and to show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.store.cards import COLUMNS, Source
from memory_pipeline.store.database import Transaction
from memory_pipeline.store.generations import ProjectionState

MOST_SUPERSEDERS = 64
"""Cards that supersede one card and are looked at, the newest first."""


class Reading(NamedTuple):
    """A card's current row, what its point must hold, the cards that supersede it, and where it is from."""

    card: MemoryRecord
    state: ProjectionState | None
    superseded_by: tuple[str, ...]
    sources: tuple[str, ...]


def read(tx: Transaction, workspace: str, generation: int, ids: Sequence[str]) -> dict[str, Reading]:
    """Read cards by id, in one query; ids that do not exist are missing from the answer.

    Each table is asked for the ids by themselves, so that each is read by its index whatever the order of the joins.
    """
    rows = tx.execute(
        f"""
        SELECT {COLUMNS}, p.state, s.sources, l.superseded_by
        FROM cards
        LEFT JOIN (
            SELECT p.card_id AS of_card, jsonb_build_array(
                p.revision, p.expected_sha256, p.acknowledged_sha256, p.dense_sha256, p.lexical_sha256
            ) AS state
            FROM projections AS p
            WHERE p.workspace = %(workspace)s AND p.generation = %(generation)s AND p.card_id = ANY (%(ids)s)
        ) AS p ON p.of_card = cards.card_id
        LEFT JOIN (
            SELECT s.card_id AS of_card, jsonb_agg(
                jsonb_build_array(s.session_id, s.decision_seq, s.card_id, s.preview_id, s.provenance, s.imported)
                ORDER BY s.source_id
            ) AS sources
            FROM card_sources AS s
            WHERE s.workspace = %(workspace)s AND s.card_id = ANY (%(ids)s)
            GROUP BY s.card_id
        ) AS s ON s.of_card = cards.card_id
        LEFT JOIN (
            SELECT l.target AS of_card,
                   (array_agg(l.card_id ORDER BY newer.number DESC))[:{MOST_SUPERSEDERS}] AS superseded_by
            FROM card_links AS l
            JOIN cards AS newer ON newer.workspace = l.workspace AND newer.card_id = l.card_id
            WHERE l.workspace = %(workspace)s AND l.target = ANY (%(ids)s) AND l.relation = 'supersedes'
                AND newer.status = 'active'
            GROUP BY l.target
        ) AS l ON l.of_card = cards.card_id
        WHERE cards.workspace = %(workspace)s AND cards.card_id = ANY (%(ids)s)
        """,  # noqa: S608 - own columns
        {"workspace": workspace, "generation": generation, "ids": list(ids)},
    )
    return {reading.card.id: reading for reading in map(_reading, rows)}


def _reading(row: dict[str, Any]) -> Reading:
    state, superseded_by, sources = row.pop("state"), row.pop("superseded_by"), row.pop("sources")
    return Reading(
        card=MemoryRecord.model_validate(row),
        state=None if state is None else ProjectionState(*state),
        superseded_by=tuple(superseded_by or ()),
        sources=tuple(Source(*fields).name for fields in sources or ()),
    )
