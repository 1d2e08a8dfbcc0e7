"""Repair proposals: what a comparison finds in the registry itself, which a human decided and only a human may mend."""

from __future__ import annotations

from itertools import groupby

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.drift import DriftKind, Finding
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.core.text import sha256
from memory_pipeline.operations.cards import require_page
from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, measures, repairs, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.repairs import Proposal, Repair, RepairProposal, RepairState

DEFAULT_LIMIT = 100


class Proposed(BaseModel):
    """What became of the proposals: `opened` now, `standing` from before, `withdrawn` since what they told is gone."""

    model_config = ConfigDict(frozen=True)

    opened: int
    standing: int
    withdrawn: int


class RepairList(BaseModel):
    """One page of proposals, newest first. `remaining` are those beyond the page."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    total: int
    remaining: int
    proposals: tuple[RepairProposal, ...]


def registry_findings(services: Services, workspace: str) -> tuple[list[Finding], int]:
    """What is wrong in the registry itself and was put before no human yet, and how much was."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        found = _proposals(tx, workspace)
        standing = repairs.standing(tx, workspace, [proposal.finding for proposal in found])
    fresh = [_finding(proposal) for proposal in found if proposal.finding not in standing]
    return fresh, len(found) - len(fresh)


def propose_repairs(services: Services, workspace: str) -> Proposed:
    """Put what is wrong in the registry before a human; take back what no longer is.

    A finding has one proposal at a time, and none any more once a human has rejected it.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        repairs.lock(tx, workspace)
        found = _proposals(tx, workspace)
        names = [proposal.finding for proposal in found]
        standing = repairs.standing(tx, workspace, names)
        fresh = [proposal for proposal in found if proposal.finding not in standing]
        withdrawn = repairs.withdraw(tx, workspace, found=names)
        repairs.propose(tx, workspace, fresh)
    return Proposed(opened=len(fresh), standing=len(found) - len(fresh), withdrawn=withdrawn)


def list_repairs(
    services: Services,
    workspace: str,
    state: RepairState | None = RepairState.OPEN,
    *,
    limit: int = DEFAULT_LIMIT,
    offset: int = 0,
) -> RepairList:
    """Read proposals, as the indexer: they name cards and decisions, and quote nothing of them.

    Raises:
        BadInput: a page that cannot be.
        UnknownWorkspace.
    """
    require_page(limit, offset)
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        proposals, total = repairs.page(tx, workspace, state, limit=limit, offset=offset)
    return RepairList(
        workspace=workspace,
        total=total,
        remaining=max(0, total - offset - len(proposals)),
        proposals=tuple(proposals),
    )


def _proposals(tx: Transaction, workspace: str) -> list[Proposal]:
    return [*_forbidden(tx, workspace), *_unsupported(tx, workspace), *_markers(tx, workspace)]


def _forbidden(tx: Transaction, workspace: str) -> list[Proposal]:
    return [
        _proposal(
            DriftKind.FORBIDDEN_TYPE,
            Repair.DELETE_CARD,
            f"an active card of kind {card.kind} has the type {card.type}, which stays with its question",
            card_id=card.card_id,
        )
        for card in drift.forbidden_cards(tx, workspace)
    ]


def _unsupported(tx: Transaction, workspace: str) -> list[Proposal]:
    """One for each card. Another decision that lapses makes another finding of it: a human looks again."""
    lapsed = [source for source in measures.lapsed_sources(tx, workspace) if not source.others]
    found = []
    for card, sources in groupby(lapsed, key=lambda source: source.card_id):
        told = list(sources)
        decisions = ", ".join(f"{source.session_id}:seq:{source.seq} is {source.status}" for source in told)
        found.append(
            _proposal(
                DriftKind.UNSUPPORTED_CARD,
                Repair.DELETE_CARD,
                f"no decision stands behind the card any more: {decisions}",
                card_id=card,
                session_id=told[0].session_id,
                decision_seq=told[0].seq,
            )
        )
    return found


def _markers(tx: Transaction, workspace: str) -> list[Proposal]:
    return [
        _proposal(
            DriftKind.MARKER_WITHOUT_CARD,
            Repair.PROMOTE_DECISION if marker.type in REUSABLE_TYPES else Repair.DISMISS,
            f"{marker.session_id}:{marker.line} says that "
            + (
                f"seq:{marker.decision_seq} ({marker.type or 'not in the ledger'})"
                if marker.decision_seq
                else "a decision"
            )
            + " was promoted, and no card comes from it",
            session_id=marker.session_id,
            decision_seq=marker.decision_seq,
        )
        for marker in drift.markers_without_card(tx, workspace)
    ]


def _proposal(
    kind: DriftKind,
    repair: Repair,
    reason: str,
    *,
    card_id: str | None = None,
    session_id: str | None = None,
    decision_seq: int | None = None,
) -> Proposal:
    identity = sha256("\n".join((kind, card_id or "", reason)))
    return Proposal(identity, kind, card_id, session_id, decision_seq, reason, repair)


def _finding(proposal: Proposal) -> Finding:
    return Finding(
        kind=proposal.kind,
        card_id=proposal.card_id,
        session_id=proposal.session_id,
        decision_seq=proposal.decision_seq,
        detail=proposal.reason,
    )
