"""Rows of repair proposals: what was found that only a human may repair, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.drift import DriftKind
from memory_pipeline.store.database import Transaction


class Repair(StrEnum):
    """What is proposed."""

    DELETE_CARD = "delete_card"
    PROMOTE_DECISION = "promote_decision"
    """Preview its session again: the decision is offered."""
    DISMISS = "dismiss"
    """Nothing can be made of it."""


class RepairState(StrEnum):
    """Open: nobody has said anything. Obsolete: it is no longer found. The others are a human's word."""

    OPEN = "open"
    OBSOLETE = "obsolete"
    APPROVED = "approved"
    REJECTED = "rejected"


class Proposal(NamedTuple):
    """What is to be put before a human. `finding` is its identity."""

    finding: str
    kind: DriftKind
    card_id: str | None
    session_id: str | None
    decision_seq: int | None
    reason: str
    repair: Repair


class RepairProposal(BaseModel):
    """A proposal as it stands."""

    model_config = ConfigDict(frozen=True)

    proposal_id: int
    state: RepairState
    kind: DriftKind
    card_id: str | None
    session_id: str | None
    decision_seq: int | None
    reason: str
    repair: Repair
    proposed_at: datetime
    proposed_by: str
    decided_at: datetime | None
    decided_by: str | None


def lock(tx: Transaction, workspace: str) -> None:
    """Hold the proposals of a workspace until the transaction ends: two comparisons propose one after the other."""
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"repairs:{workspace}",))


def standing(tx: Transaction, workspace: str, findings: Sequence[str]) -> set[str]:
    """Those of these findings that a human was asked about and that are open, or were rejected."""
    rows = tx.execute(
        """
        SELECT DISTINCT finding FROM repairs
        WHERE workspace = %s AND finding = ANY (%s) AND state IN ('open', 'rejected')
        """,
        (workspace, list(findings)),
    )
    return {row["finding"] for row in rows}


def propose(tx: Transaction, workspace: str, proposals: Iterable[Proposal]) -> None:
    """Open proposals, as the indexer. The caller holds the lock, and none of them stands."""
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO repair_proposals (workspace, finding, occurrence, kind, card_id, session_id, decision_seq,
                                          reason, repair)
            VALUES (
                %(workspace)s, %(finding)s::sha256_hex,
                (SELECT 1 + count(*) FROM repair_proposals
                 WHERE workspace = %(workspace)s AND finding = %(finding)s::sha256_hex),
                %(kind)s, %(card_id)s, %(session_id)s, %(decision_seq)s, %(reason)s, %(repair)s
            )
            """,
            [{"workspace": workspace, **proposal._asdict()} for proposal in proposals],
        )


def withdraw(tx: Transaction, workspace: str, *, found: Sequence[str]) -> int:
    """Close the open proposals whose finding is not among these, as the indexer; returns how many."""
    return tx.execute(
        """
        INSERT INTO repair_outcomes (workspace, proposal_id, outcome)
        SELECT workspace, proposal_id, 'obsolete' FROM repairs
        WHERE workspace = %s AND state = 'open' AND finding <> ALL (%s)
        """,
        (workspace, list(found)),
    ).rowcount


def page(
    tx: Transaction, workspace: str, state: RepairState | None, *, limit: int, offset: int
) -> tuple[list[RepairProposal], int]:
    """One page of proposals, newest first, and how many there are in all; of one state, or of every one."""
    passing = "FROM repairs WHERE workspace = %(workspace)s AND (%(state)s::text IS NULL OR state = %(state)s)"
    parameters = {"workspace": workspace, "state": state, "limit": limit, "offset": offset}
    total = tx.execute(f"SELECT count(*) AS proposals {passing}", parameters).fetchone()
    rows = tx.execute(
        f"""
        SELECT proposal_id, state, kind, card_id, session_id, decision_seq, reason, repair, proposed_at, proposed_by,
               decided_at, decided_by
        {passing} ORDER BY proposal_id DESC LIMIT %(limit)s OFFSET %(offset)s
        """,
        parameters,
    )
    return [RepairProposal.model_validate(row) for row in rows], total["proposals"] if total else 0
