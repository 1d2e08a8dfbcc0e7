"""Rows of golden questions, and of what their measurements came to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.core.quality import QualityFigures
from memory_pipeline.core.text import fold, sha256
from memory_pipeline.store.database import Transaction

_FIGURES = "generation, cards, sampled, self_recall, golden, golden_sha256, ndcg_at_10, recall_at_1, recall_at_5, mrr"
_ROW = f"figure_id, measured_at, measured_by, accepted_at, accepted_by, {_FIGURES}"


class GoldenRow(NamedTuple):
    """One golden question as it is stored."""

    golden_id: int
    question: str
    database: str
    schema: str | None
    expected: list[str]
    added_at: datetime
    added_by: str


class MeasuredRow(NamedTuple):
    """One measurement, and whether a reviewer accepted it."""

    figure_id: int
    measured_at: datetime
    measured_by: str
    accepted_at: datetime | None
    accepted_by: str | None
    figures: QualityFigures


def put(tx: Transaction, workspace: str, question: str, place: Dependency, expected: Iterable[str]) -> bool:
    """Add a golden question, as the reviewer, or give the one that is there these cards. True where it is a new one."""
    row = tx.execute(
        """
        INSERT INTO golden_queries AS g (workspace, question, question_sha256, database, schema, expected)
        VALUES (%(workspace)s, %(question)s, %(sha256)s, %(database)s, %(schema)s, %(expected)s)
        ON CONFLICT (workspace, question_sha256, database, schema) DO UPDATE
        SET question = excluded.question, expected = excluded.expected, added_at = excluded.added_at,
            added_by = excluded.added_by, via = excluded.via
        RETURNING xmax = 0 AS inserted
        """,
        {
            "workspace": workspace,
            "question": question,
            "sha256": sha256(fold(question)),
            "database": place.database,
            "schema": place.schema_,
            "expected": list(expected),
        },
    ).fetchone()
    return bool(row and row["inserted"])


def listed(tx: Transaction, workspace: str) -> list[GoldenRow]:
    """Every golden question of a workspace, in the order in which they came."""
    rows = tx.execute(
        """
        SELECT golden_id, question, database, schema, expected, added_at, added_by
        FROM golden_queries WHERE workspace = %s ORDER BY golden_id
        """,
        (workspace,),
    )
    return [GoldenRow(**row) for row in rows]


def sample(tx: Transaction, workspace: str, limit: int) -> tuple[list[str], int]:
    """Ids of some active reusable memories, the same ones as long as they are there, and how many there are."""
    rows = tx.execute(
        """
        SELECT card_id, count(*) OVER () AS cards FROM cards
        WHERE workspace = %s AND kind = 'memory' AND status = 'active' AND type = ANY (%s)
        ORDER BY sha256(card_id::bytea), card_id LIMIT %s
        """,
        (workspace, sorted(REUSABLE_TYPES), limit),
    ).fetchall()
    return [row["card_id"] for row in rows], rows[0]["cards"] if rows else 0


def record(tx: Transaction, workspace: str, figures: QualityFigures) -> None:
    """Keep a measurement, as the indexer."""
    tx.execute(
        f"""
        INSERT INTO quality_figures (workspace, {_FIGURES})
        VALUES (%(workspace)s, %(generation)s, %(cards)s, %(sampled)s, %(self_recall)s, %(golden)s, %(golden_sha256)s,
                %(ndcg_at_10)s, %(recall_at_1)s, %(recall_at_5)s, %(mrr)s)
        """,  # noqa: S608 - own columns
        {"workspace": workspace, **figures.model_dump()},
    )


def newest(tx: Transaction, workspace: str, *, limit: int = 1) -> list[MeasuredRow]:
    """The last measurements, newest first."""
    rows = tx.execute(
        f"SELECT {_ROW} FROM quality_figures WHERE workspace = %s ORDER BY figure_id DESC LIMIT %s",  # noqa: S608 - own columns
        (workspace, limit),
    )
    return [_measured(row) for row in rows]


def accepted(tx: Transaction, workspace: str, golden_sha256: str) -> MeasuredRow | None:
    """What a measurement with these golden questions is held against: the one accepted last, or else the first."""
    row = tx.execute(
        f"""
        SELECT {_ROW} FROM quality_figures WHERE workspace = %s AND golden_sha256 = %s
        ORDER BY accepted_at DESC NULLS LAST, figure_id LIMIT 1
        """,  # noqa: S608 - own columns
        (workspace, golden_sha256),
    ).fetchone()
    return _measured(row) if row else None


def accept(tx: Transaction, workspace: str, figure_id: int) -> None:
    """Hold later figures against this one, as the reviewer."""
    tx.execute(
        """
        UPDATE quality_figures SET accepted_at = clock_timestamp(), accepted_by = session_user
        WHERE workspace = %s AND figure_id = %s
        """,
        (workspace, figure_id),
    )


def _measured(row: dict[str, Any]) -> MeasuredRow:
    own = {name: row.pop(name) for name in MeasuredRow._fields if name != "figures"}
    return MeasuredRow(**own, figures=QualityFigures.model_validate(row))
