"""What a session offers to its reviewer: a stored snapshot of every candidate, shown page by page."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.candidates import Candidate, Derivation, LeftOut, cited_cards, derive
from memory_pipeline.core.effective import Status
from memory_pipeline.core.errors import BadInput
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.logs import operation
from memory_pipeline.operations.inbox import read_session
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.similar import Similar, Similarity, similar_to
from memory_pipeline.store import cards, ledger, previews, workspaces
from memory_pipeline.store.database import Role, Transaction

DEFAULT_LIMIT = 5


class OfferedCandidate(BaseModel):
    """A candidate with what is known of the same text: an active card, or one that was deleted; and of similar ones."""

    model_config = ConfigDict(frozen=True)

    candidate: Candidate
    duplicate_of: str | None = None
    previously: str | None = None
    similar_to: tuple[Similar, ...] = ()


class Preview(BaseModel):
    """One page of a session's candidates, of which `pending` are undecided in all and `remaining` beyond the page.

    `similarity` tells how `similar_to` was looked up.
    """

    model_config = ConfigDict(frozen=True)

    session: str
    preview_id: UUID | None
    expires_at: datetime | None
    ledger_seq: int
    pending: int
    remaining: int
    candidates: tuple[OfferedCandidate, ...]
    similarity: Similarity
    left_out: tuple[LeftOut, ...]


@operation("promote.preview", lambda found: {"session": found.session, "pending": found.pending})
def preview(
    services: Services, workspace: str, session_id: str, *, limit: int = DEFAULT_LIMIT, offset: int = 0
) -> Preview:
    """Read the session's inbox, derive its candidates, and store a snapshot of all of them, as the harness.

    `limit` and `offset` only page what is shown. Without a candidate nothing is stored. What is similar is looked up
    once the snapshot is stored, and is no part of it: a preview does not need the index.

    Raises:
        UnknownSession: nothing was ever written to the session.
        WorkspaceRetired: nothing is promoted there.
        BadInput: a page that cannot be.
    """
    if limit < 1 or offset < 0:
        raise BadInput(
            f"a page of {limit} from {offset} cannot be shown", hint="use a limit of at least 1 and no negative offset"
        )
    read_session(services, workspace, session_id)
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        ledger.require_session(tx, workspace, session_id)
        workspaces.lock_session(tx, workspace, session_id)
        derivation = derive_candidates(tx, workspace, session_id)
        found = derivation.candidates
        seq = ledger.last_seq(tx, workspace, session_id)
        offers = [_offer(tx, workspace, candidate) for candidate in found]
        snapshot = [(offer.candidate, offer.duplicate_of) for offer in offers]
        preview_id, expires_at = previews.insert(tx, workspace, session_id, seq, snapshot) if found else (None, None)
        left_out = _left_out(tx, workspace, session_id, derivation)
    page = offers[offset : offset + limit]
    near, similarity = similar_to(services, workspace, [offer.candidate for offer in page], found)
    return Preview(
        session=session_id,
        preview_id=preview_id,
        expires_at=expires_at,
        ledger_seq=seq,
        pending=len(found),
        remaining=max(0, len(found) - offset - len(page)),
        candidates=tuple(offer.model_copy(update={"similar_to": near[offer.candidate.seq]}) for offer in page),
        similarity=similarity,
        left_out=left_out,
    )


def derive_candidates(tx: Transaction, workspace: str, session_id: str) -> Derivation:
    """The session's candidates as they stand now, in this transaction."""
    effective = ledger.effective_decisions(tx, workspace, session_id)
    cited = {card for entry in effective if entry.type in REUSABLE_TYPES for card in cited_cards(entry)}
    sources = cards.sources_of_session(tx, workspace, session_id)
    return derive(
        effective,
        workspace=workspaces.get(tx, workspace),
        question=ledger.question_of(tx, workspace, session_id),
        promoted={seq: source.card_id for seq, source in sources.items()},
        declined=ledger.declined_seqs(tx, workspace, session_id),
        cited=cards.get_many(tx, workspace, sorted(cited)) if cited else {},
    )


def _left_out(tx: Transaction, workspace: str, session_id: str, derivation: Derivation) -> tuple[LeftOut, ...]:
    """Every clarified concept that is not offered, in seq order: those that no longer count among them."""
    ineffective = (
        LeftOut(seq=row.seq, subject=row.subject or "", reason=LeftOut.Reason(row.status.value))
        for row in ledger.rows_with_status(tx, workspace, session_id)
        if row.seq is not None and row.type in REUSABLE_TYPES and row.status in (Status.STALE, Status.RETRACTED)
    )
    return tuple(sorted((*derivation.left_out, *ineffective), key=lambda left: left.seq))


def _offer(tx: Transaction, workspace: str, candidate: Candidate) -> OfferedCandidate:
    """Active equivalents come first, so the first one tells."""
    for card_id, status in cards.equivalents(tx, workspace, candidate.content):
        if status == "active":
            return OfferedCandidate(candidate=candidate, duplicate_of=card_id)
        return OfferedCandidate(candidate=candidate, previously=card_id)
    return OfferedCandidate(candidate=candidate)
