"""Curation: what a reviewer changes in cards by hand.

Every change is made on a revision that the reviewer names, under the lock of the workspace's cards; the kept revision
and the row in the outbox are written with it, by the store. A change that would change nothing writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from psycopg.errors import UniqueViolation
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, Link, MemoryRecord, is_card_id
from memory_pipeline.core.curation import CardFields, blank_content, own_type, require_card
from memory_pipeline.core.display import told_time
from memory_pipeline.core.errors import (
    BadCard,
    CardDeleted,
    DuplicateCard,
    EvidenceNotCurated,
    SelfLink,
    StaleRevision,
    UnknownCard,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, curation, workspaces
from memory_pipeline.store.database import Role, Transaction


class Action(StrEnum):
    """What curation can do to a card."""

    ADD = "add"
    EDIT = "edit"
    DELETE = "delete"
    SET_KIND = "set-kind"
    LINK = "link"
    UNLINK = "unlink"


class Curated(BaseModel):
    """What one call came to: the card as it stands now, and whether this call changed it."""

    model_config = ConfigDict(frozen=True)

    action: Action
    changed: bool
    card: MemoryRecord


def add_card(services: Services, workspace: str, fields: CardFields, kind: CardKind = CardKind.MEMORY) -> Curated:
    """Add a card by hand; its source is the reviewer.

    Raises:
        DuplicateCard: an active card of this kind says the same in the same places and scope.
        BadCard, NotReusable, NotAConcept, EvidenceNotCurated: it cannot be a card of this kind.
        UnknownWorkspace, WorkspaceRetired.
    """
    (card,) = add_cards(services, workspace, [fields], kind)
    return Curated(action=Action.ADD, changed=True, card=card)


def add_cards(
    services: Services, workspace: str, batch: Sequence[CardFields], kind: CardKind = CardKind.MEMORY
) -> list[MemoryRecord]:
    """Add cards by hand, all or none, in one transaction; each passes what `add_card` asks. In the order given.

    Raises:
        DuplicateCard: an active card of this kind, or another one of the batch, says the same in the same places.
        BadCard, NotReusable, NotAConcept, EvidenceNotCurated: one cannot be a card of this kind.
        UnknownWorkspace, WorkspaceRetired.
    """
    if any(fields.subject is None or fields.detail is None for fields in batch):
        raise BadCard("a card needs a subject and a detail", hint="give both")
    with _open(services, workspace) as desk:
        blank, schema = blank_content(kind), desk.workspace.default_schema
        return desk.insert_all([require_card(kind, fields.over(blank, schema)) for fields in batch], kind)


def edit_card(services: Services, workspace: str, card_id: str, revision: int, fields: CardFields) -> Curated:
    """Change what a card says or where it holds.

    Raises:
        StaleRevision: the card has moved on from this revision.
        UnknownCard, CardDeleted, EvidenceNotCurated.
        DuplicateCard, BadCard, NotReusable, NotAConcept: the card cannot become this.
    """
    with _open(services, workspace) as desk:
        card = desk.curated(card_id, "edited")
        desk.require_newest(card, revision)
        content = require_card(card.kind, fields.over(card, desk.workspace.default_schema))
        return desk.write(Action.EDIT, card, content)


def delete_card(services: Services, workspace: str, card_id: str, revision: int) -> Curated:
    """Take a card out of use, evidence too. Its row and its revisions stay, its id is never used again.

    Raises:
        StaleRevision: the card has moved on from this revision.
        UnknownCard, CardDeleted.
    """
    with _open(services, workspace) as desk:
        card = desk.card(card_id)
        desk.require_newest(card, revision)
        return desk.write(Action.DELETE, card, card, status=CardStatus.DELETED)


def set_kind(
    services: Services, workspace: str, card_id: str, revision: int, kind: CardKind, *, type_: str | None = None
) -> Curated:
    """Make a card one of another kind: the same card, with the same id and one point.

    Args:
        type_: of the card in its new kind; the kind's own by default. Memories have one type only.

    Raises:
        StaleRevision: the card has moved on from this revision.
        UnknownCard, CardDeleted, EvidenceNotCurated: evidence is neither made nor unmade here.
        DuplicateCard, BadCard, NotReusable, NotAConcept: the card cannot be one of this kind.
    """
    with _open(services, workspace) as desk:
        card = desk.curated(card_id, "changed in kind")
        desk.require_newest(card, revision)
        content = require_card(kind, card.model_copy(update={"type": type_ or own_type(kind)}))
        done = desk.write(Action.SET_KIND, card, content, kind=kind)
        if done.changed and kind is CardKind.MEMORY:
            curation.insert_source(desk.tx, workspace, card_id, "curation")
        return done


def link_card(services: Services, workspace: str, card_id: str, revision: int, link: Link) -> Curated:
    """Let a card point to another one. A link that is there already is no change, whatever the revision.

    Raises:
        SelfLink: a card does not point to itself.
        UnknownCard, CardDeleted: the card or its target.
        StaleRevision, EvidenceNotCurated.
    """
    if link.target == card_id:
        raise SelfLink(card_id)
    with _open(services, workspace) as desk:
        card = desk.curated(card_id, "linked")
        desk.card(link.target)
        return desk.set_links(Action.LINK, card, revision, (*(old for old in card.links if old != link), link))


def link_cards(services: Services, workspace: str, links: Mapping[str, Sequence[Link]]) -> list[MemoryRecord]:
    """Let cards point to others, all or none, in one transaction: each its newest revision, whatever it is.

    Args:
        links: new links by the id of the card that they go out from.

    Raises:
        SelfLink, UnknownCard, CardDeleted, EvidenceNotCurated: as for `link_card`.
    """
    with _open(services, workspace) as desk:
        return [desk.link(card_id, wanted) for card_id, wanted in links.items()]


def unlink_card(services: Services, workspace: str, card_id: str, revision: int, link: Link) -> Curated:
    """Take a link away, whatever became of its target. A link that is not there is no change, whatever the revision.

    Raises:
        UnknownCard, CardDeleted, StaleRevision, EvidenceNotCurated.
    """
    with _open(services, workspace) as desk:
        card = desk.curated(card_id, "unlinked")
        kept = tuple(old for old in card.links if old != link)
        return desk.set_links(Action.UNLINK, card, revision, kept)


@contextlib.contextmanager
def _open(services: Services, workspace: str) -> Iterator[_Desk]:
    """One change, as the reviewer, while nobody else gives ids or looks for equals."""
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        settings = workspaces.get_active(tx, workspace)
        workspaces.lock_cards(tx, workspace)
        yield _Desk(tx, settings)


class _Desk(NamedTuple):
    """A workspace's cards in the reviewer's hands, for one transaction."""

    tx: Transaction
    workspace: Workspace

    def card(self, card_id: str) -> MemoryRecord:
        """A card that is not deleted, held until the end."""
        slug = self.workspace.slug
        card = curation.get_locked(self.tx, slug, card_id) if is_card_id(card_id) else None
        if card is None:
            raise UnknownCard(slug, card_id[:80])
        if card.status is CardStatus.DELETED:
            raise CardDeleted(card.id, card.updated_by, told_time(card.updated_at))
        return card

    def curated(self, card_id: str, verb: str) -> MemoryRecord:
        """As `card`, but of a kind whose content curation may change."""
        card = self.card(card_id)
        if card.kind is CardKind.EVIDENCE:
            raise EvidenceNotCurated(verb)
        return card

    def require_newest(self, card: MemoryRecord, revision: int) -> None:
        """Raise `StaleRevision` unless the change was made on the current revision."""
        if card.revision != revision:
            raise StaleRevision(card.id, revision, card.revision, card.updated_by, told_time(card.updated_at))

    def insert_all(self, contents: Sequence[CardContent], kind: CardKind) -> list[MemoryRecord]:
        """New cards, in the order given."""
        self._require_no_equals(contents, kind)
        slug = self.workspace.slug
        new_ids = cards.next_ids(self.tx, slug, len(contents))
        for new_id, content in zip(new_ids, contents, strict=True):
            with _duplicates_named(content):
                cards.insert(self.tx, slug, new_id, content, kind)
            curation.insert_source(self.tx, slug, new_id, "curation")
        made = cards.get_many(self.tx, slug, new_ids)
        return [made[new_id] for new_id in new_ids]

    def link(self, card_id: str, links: Sequence[Link]) -> MemoryRecord:
        """The card with these links besides its own."""
        card = self.curated(card_id, "linked")
        for link in links:
            if link.target == card_id:
                raise SelfLink(card_id)
            self.card(link.target)
        together = tuple(dict.fromkeys((*card.links, *links)))
        return self.set_links(Action.LINK, card, card.revision, together).card

    def write(
        self,
        action: Action,
        card: MemoryRecord,
        content: CardContent,
        *,
        kind: CardKind | None = None,
        status: CardStatus | None = None,
    ) -> Curated:
        """The next revision of a card, where it differs from this one at all."""
        kind, status = kind or card.kind, status or card.status
        if (kind, status, _fields(content)) == (card.kind, card.status, _fields(card)):
            return Curated(action=action, changed=False, card=card)
        if status is CardStatus.ACTIVE:
            self._require_no_equal(content, kind, besides=card.id)
        with _duplicates_named(content):
            curation.revise(self.tx, card, content, kind, status)
        return Curated(action=action, changed=True, card=self._now(card.id))

    def set_links(self, action: Action, card: MemoryRecord, revision: int, links: tuple[Link, ...]) -> Curated:
        """The card with these links; the same set of them is no change."""
        if set(links) == set(card.links):
            return Curated(action=action, changed=False, card=card)
        self.require_newest(card, revision)
        return self.write(action, card, card.model_copy(update={"links": links}))

    def _require_no_equal(self, content: CardContent, kind: CardKind, besides: str = "") -> None:
        self._require_no_equals([content], kind, besides)

    def _require_no_equals(self, contents: Sequence[CardContent], kind: CardKind, besides: str = "") -> None:
        """Raise `DuplicateCard` where one says the same as an active card, or as one before it in the batch."""
        identities = [curation.identity_of(content) for content in contents]
        equals = curation.active_with(self.tx, self.workspace.slug, kind, identities)
        seen: set[curation.Identity] = set()
        for identity, content in zip(identities, contents, strict=True):
            equal = "another card of the batch" if identity in seen else equals.get(identity)
            if equal not in (None, besides):
                raise DuplicateCard(
                    f"{equal} is an active {kind} that says the same as {content.subject[:80]!r} in the same places",
                    hint=f"edit {equal}, or say what sets this one apart",
                )
            seen.add(identity)

    def _now(self, card_id: str) -> MemoryRecord:
        return cards.get_many(self.tx, self.workspace.slug, [card_id])[card_id]


@contextlib.contextmanager
def _duplicates_named(content: CardContent) -> Iterator[None]:
    """The index holds what the look-up missed: a card made past the lock."""
    try:
        yield
    except UniqueViolation as error:
        raise DuplicateCard(
            f"another active memory says the same as {content.subject[:80]!r} in the same places",
            hint="memory-pipeline cards list --text finds it; edit that one",
        ) from error


def _fields(content: CardContent) -> dict[str, object]:
    return {name: getattr(content, name) for name in CardContent.model_fields}
