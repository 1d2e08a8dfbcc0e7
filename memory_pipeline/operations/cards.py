"""Looking at cards: lists, one card, and its history."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import MemoryRecord, is_card_id
from memory_pipeline.core.errors import BadInput, UnknownCard
from memory_pipeline.core.history import Revision, changes_between
from memory_pipeline.core.text import require_storable
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, curation, workspaces
from memory_pipeline.store.curation import CardFilter, StoredRevision
from memory_pipeline.store.database import Role

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000


class CardList(BaseModel):
    """One page of a workspace's cards, by number. `remaining` are those beyond the page."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    total: int
    remaining: int
    cards: tuple[MemoryRecord, ...]


class ShownCard(BaseModel):
    """One card with what stands behind it, and its revisions, oldest first, where they were asked for."""

    model_config = ConfigDict(frozen=True)

    card: MemoryRecord
    sources: tuple[str, ...]
    history: tuple[Revision, ...] | None = None


def list_cards(
    services: Services, workspace: str, wanted: CardFilter, *, limit: int = DEFAULT_LIMIT, offset: int = 0
) -> CardList:
    """List cards, as the reader.

    Raises:
        BadInput: a page that cannot be.
        UnknownWorkspace.
    """
    require_page(limit, offset)
    require_storable(wanted.text, "the text to look for")
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        found, total = curation.listed(tx, workspace, wanted, limit=limit, offset=offset)
    return CardList(workspace=workspace, total=total, remaining=max(0, total - offset - len(found)), cards=tuple(found))


def show_card(services: Services, workspace: str, card_id: str, *, history: bool = False) -> ShownCard:
    """Show one card, deleted ones too; with its history only as the reviewer.

    Raises:
        UnknownCard, UnknownWorkspace.
    """
    role = Role.REVIEWER if history else Role.READER
    with services.database.transaction(role, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        known = is_card_id(card_id)
        card = cards.get_many(tx, workspace, [card_id]).get(card_id) if known else None
        if card is None:
            raise UnknownCard(workspace, card_id[:80])
        sources = cards.sources_of_cards(tx, workspace, [card_id]).get(card_id, [])
        revisions = curation.revisions(tx, workspace, card_id) if history else None
    return ShownCard(
        card=card,
        sources=tuple(source.name for source in sources),
        history=_told(revisions) if revisions is not None else None,
    )


def require_page(limit: int, offset: int) -> None:
    """Raise `BadInput` for a page that cannot be shown."""
    if not 1 <= limit <= MAX_LIMIT or offset < 0:
        raise BadInput(
            f"a page of {limit} from {offset} cannot be shown",
            hint=f"use a limit of 1 to {MAX_LIMIT} and no negative offset",
        )


def _told(revisions: list[StoredRevision]) -> tuple[Revision, ...]:
    before = [None, *(revision.card for revision in revisions)]
    return tuple(
        Revision(
            revision=revision.revision,
            at=revision.revised_at,
            by=revision.revised_by,
            via=revision.via,
            changes=changes_between(old, revision.card) if old is not None else (),
        )
        for old, revision in zip(before, revisions, strict=False)
    )
