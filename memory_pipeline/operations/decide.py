"""The gate: one transaction for a reviewer's whole checklist.

Cards, their sources, the markers in the ledger and the rows of the outbox are written all or nothing. A verdict given
before is answered again from the marker that it wrote: a call repeated after a time-out changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from psycopg.errors import UniqueViolation
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.candidates import Candidate, Derivation, LeftOut, is_same_human
from memory_pipeline.core.cards import CardContent, Link, MemoryRecord
from memory_pipeline.core.errors import (
    AlreadyDecided,
    BadInput,
    CandidateChanged,
    DuplicateCard,
    FourEyes,
    NotInPreview,
    NotReusable,
    PreviewExpired,
)
from memory_pipeline.core.ledger import REUSABLE_TYPES, EntryType
from memory_pipeline.core.references import decision_of
from memory_pipeline.core.text import fold
from memory_pipeline.logs import operation
from memory_pipeline.operations.preview import derive_candidates
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, ledger, previews, workspaces
from memory_pipeline.store.database import Role, Transaction, login_of
from memory_pipeline.store.previews import StoredPreview


class Outcome(StrEnum):
    """What a verdict led to."""

    CREATED = "created"
    PROVENANCE_ADDED = "provenance_added"
    DECLINED = "declined"


class Verdict(BaseModel):
    """One decided candidate: all seqs for which it stands, and the card it became or joined."""

    model_config = ConfigDict(frozen=True)

    seq: int
    folded_seqs: tuple[int, ...] = ()
    outcome: Outcome
    card_id: str | None = None
    warnings: tuple[str, ...] = ()


class Decision(BaseModel):
    """What a call decided, in seq order. `pending` candidates of the session are still undecided."""

    model_config = ConfigDict(frozen=True)

    session: str
    preview_id: UUID
    verdicts: tuple[Verdict, ...]
    pending: int


@operation(
    "promote.decide",
    lambda decision: {
        "session": decision.session,
        "cards": [each.card_id for each in decision.verdicts if each.card_id],
    },
)
def decide(
    services: Services, workspace: str, preview_id: UUID, *, selected: Iterable[int], declined: Iterable[int]
) -> Decision:
    """Decide candidates of a preview, as the reviewer that PostgreSQL knows by its login.

    A folded seq stands for its whole candidate.

    Raises:
        UnknownPreview, PreviewExpired, NotInPreview, CandidateChanged, AlreadyDecided, NotReusable, FourEyes: nothing
            is written.
        BadInput: no seq at all, or one that is both selected and declined.
    """
    chosen, refused = frozenset(selected), frozenset(declined)
    if not chosen | refused:
        raise BadInput("no seq was selected or declined", hint="name at least one seq of the preview")
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        stored = previews.get(tx, workspace, preview_id)
        wanted = _wanted(stored, chosen, refused)
        workspaces.lock_session(tx, workspace, stored.session_id)
        workspaces.lock_cards(tx, workspace)
        four_eyes = workspaces.get_active(tx, workspace).four_eyes  # again: what the owner set before the lock was ours
        verdicts = _Gate.open(tx, workspace, stored, four_eyes=four_eyes).decide(wanted)
        pending = len(derive_candidates(tx, workspace, stored.session_id).candidates)
    return Decision(session=stored.session_id, preview_id=preview_id, verdicts=verdicts, pending=pending)


def _wanted(stored: StoredPreview, selected: frozenset[int], declined: frozenset[int]) -> list[tuple[Candidate, bool]]:
    """Each candidate that is named, in seq order, with whether it is selected."""
    owners = {seq: candidate.seq for candidate in stored.candidates for seq in candidate.seqs}
    if unknown := (selected | declined) - owners.keys():
        raise NotInPreview(str(stored.preview_id), unknown)
    chosen, refused = {owners[seq] for seq in selected}, {owners[seq] for seq in declined}
    if both := sorted(chosen & refused):
        raise BadInput(
            f"seq:{both[0]} is both selected and declined (itself, or by what is folded into it)",
            hint="give each candidate one verdict",
        )
    named = [candidate for candidate in stored.candidates if candidate.seq in chosen | refused]
    for candidate in named:
        if candidate.content.type not in REUSABLE_TYPES:
            raise NotReusable(candidate.content.type)
    return [(candidate, candidate.seq in chosen) for candidate in named]


@dataclass(frozen=True)
class _Gate:
    """One session under its lock, in the reviewer's transaction.

    Attributes:
        sources: card of each decision that was promoted before.
        declined: seqs whose refusal still counts.
        four_eyes: a human may not promote a decision of their own.
    """

    tx: Transaction
    workspace: str
    preview: StoredPreview
    sources: Mapping[int, str]
    declined: frozenset[int]
    four_eyes: bool

    @classmethod
    def open(cls, tx: Transaction, workspace: str, preview: StoredPreview, *, four_eyes: bool) -> _Gate:
        """Read what was decided so far."""
        sources = cards.sources_of_session(tx, workspace, preview.session_id)
        return cls(
            tx=tx,
            workspace=workspace,
            preview=preview,
            sources={seq: source.card_id for seq, source in sources.items()},
            declined=frozenset(ledger.declined_seqs(tx, workspace, preview.session_id)),
            four_eyes=four_eyes,
        )

    def decide(self, wanted: list[tuple[Candidate, bool]]) -> tuple[Verdict, ...]:
        """Write what is new, answer again what is not."""
        repeated = [(item, select) for item, select in wanted if self._decided(item)]
        fresh = [(item, select) for item, select in wanted if not self._decided(item)]
        verdicts = [self._repeat(item, select) for item, select in repeated]
        if fresh:
            derivation = self._require_unchanged([item for item, _ in fresh])
            current = {candidate.seq: candidate for candidate in derivation.candidates}
            chosen = [current[item.seq] for item, select in fresh if select]
            self._require_other_eyes(chosen)
            verdicts += self._promote(chosen, known=_known_cards(derivation))
            verdicts += [self._decline(current[item.seq]) for item, select in fresh if not select]
        return tuple(sorted(verdicts, key=lambda verdict: verdict.seq))

    def _decided(self, candidate: Candidate) -> bool:
        return candidate.seq in self.sources or candidate.seq in self.declined

    def _repeat(self, candidate: Candidate, select: bool) -> Verdict:
        promoted = candidate.seq in self.sources
        if promoted is not select:
            raise AlreadyDecided(candidate.seq, "promoted" if promoted else "declined")
        marker = ledger.newest_marker(self.tx, self.workspace, self.preview.session_id, candidate.seq)
        if marker is None:  # declined in a file that brought its own history
            return Verdict(seq=candidate.seq, folded_seqs=candidate.folded_seqs, outcome=Outcome.DECLINED)
        return Verdict.model_validate(marker)

    def _require_unchanged(self, candidates: list[Candidate]) -> Derivation:
        """The candidates as they are now: what is written comes from the ledger, not from the preview."""
        if self.preview.expired:
            raise PreviewExpired(str(self.preview.preview_id))
        derivation = derive_candidates(self.tx, self.workspace, self.preview.session_id)
        current = {candidate.seq: candidate for candidate in derivation.candidates}
        known = _known_cards(derivation)
        for shown in candidates:
            now = current.get(shown.seq)
            if now is None and shown.seq in known:
                raise CandidateChanged(shown.seq, f"{known[shown.seq]}, which it cites, says just the same now")
            if now is None:
                raise CandidateChanged(shown.seq, "it is no longer an effective, undecided concept of its own")
            if now.folded_seqs != shown.folded_seqs:
                raise CandidateChanged(shown.seq, "its equivalents in the session are others now")
            if (now.sha256, now.content) != (shown.sha256, shown.content):
                raise CandidateChanged(shown.seq, "the card that it would become differs")
        return derivation

    def _require_other_eyes(self, candidates: list[Candidate]) -> None:
        """A decision that the reviewer made, be it only one that is folded, waits for somebody else."""
        if not self.four_eyes:
            return
        reviewer = login_of(self.tx)
        own = [item.seq for item in candidates if any(is_same_human(human, reviewer) for human in item.humans)]
        if own:
            raise FourEyes(reviewer, own)

    def _promote(self, candidates: list[Candidate], known: Mapping[int, str]) -> list[Verdict]:
        """Create a card per candidate, or add a source to the active card that says the same.

        Args:
            known: cards of decisions that were chosen in F2 and left as they are; links may point to these decisions.
        """
        existing = {item.seq: card for item in candidates if (card := self._active_equivalent(item.content))}
        fresh = [item for item in candidates if item.seq not in existing]
        created = dict(
            zip([item.seq for item in fresh], cards.next_ids(self.tx, self.workspace, len(fresh)), strict=True)
        )
        owner = {**{seq: card.id for seq, card in existing.items()}, **created}
        targets = {**known, **self.sources, **{seq: owner[item.seq] for item in candidates for seq in item.seqs}}
        for item in fresh:
            self._insert(created[item.seq], _with_links(item.content, targets))
        self._resolve_older_links(targets)
        verdicts = []
        for item in candidates:
            joined = existing.get(item.seq)
            warnings = _not_brought(_with_links(item.content, targets), joined) if joined else ()
            verdict = Verdict(
                seq=item.seq,
                folded_seqs=item.folded_seqs,
                outcome=Outcome.PROVENANCE_ADDED if joined else Outcome.CREATED,
                card_id=owner[item.seq],
                warnings=(*self._since_the_preview(item, joined), *warnings),
            )
            cards.insert_sources(
                self.tx,
                self.workspace,
                owner[item.seq],
                session_id=self.preview.session_id,
                seqs=item.seqs,
                preview_id=self.preview.preview_id,
            )
            self._mark(EntryType.MEMORY_PROMOTED, item, verdict)
            verdicts.append(verdict)
        return verdicts

    def _insert(self, card_id: str, content: CardContent) -> None:
        try:
            cards.insert(self.tx, self.workspace, card_id, content)
        except UniqueViolation as error:
            raise DuplicateCard(
                f"an active memory of workspace {self.workspace!r} says the same as {content.subject!r}",
                hint="preview again: the candidate then names that card, and selecting it adds its source",
            ) from error

    def _active_equivalent(self, content: CardContent) -> MemoryRecord | None:
        """Looked up again under the lock: a match that appeared since the preview counts."""
        for card_id, status in cards.equivalents(self.tx, self.workspace, content):
            if status == "active":
                return cards.get_many(self.tx, self.workspace, [card_id])[card_id]
        return None

    def _since_the_preview(self, candidate: Candidate, joined: MemoryRecord | None) -> tuple[str, ...]:
        """What the reviewer could not see: a card that came to say the same, or ceased to."""
        shown = self.preview.duplicates.get(candidate.seq)
        if joined and joined.id != shown:
            return (f"{joined.id} says the same since the preview: it got the source, and no new card was made",)
        if shown and not joined:
            return (f"{shown} no longer says the same as an active card: a new one was made",)
        return ()

    def _resolve_older_links(self, targets: Mapping[int, str]) -> None:
        """Cards that this session made, where they pointed at a decision which has its card only now.

        A card of another session may have a source here too: the numbers in its links are not ours.
        """
        ids = sorted(set(self.sources.values()))
        sources = cards.sources_of_cards(self.tx, self.workspace, ids)
        for card in cards.get_many(self.tx, self.workspace, ids).values():
            resolved = _with_links(card, targets)
            if sources[card.id][0].session_id == self.preview.session_id and resolved.links != card.links:
                cards.set_links(self.tx, card, resolved.links)

    def _decline(self, candidate: Candidate) -> Verdict:
        verdict = Verdict(seq=candidate.seq, folded_seqs=candidate.folded_seqs, outcome=Outcome.DECLINED)
        self._mark(EntryType.MEMORY_PROMOTION_DECLINED, candidate, verdict)
        return verdict

    def _mark(self, type_: EntryType, candidate: Candidate, verdict: Verdict) -> None:
        """One marker for each decision for which the candidate stands."""
        for seq in candidate.seqs:
            ledger.insert_marker(
                self.tx,
                self.workspace,
                self.preview.session_id,
                type_=type_,
                seq=seq,
                memories=[verdict.card_id] if verdict.card_id else [],
                extra={"preview_id": str(self.preview.preview_id), "verdict": verdict.model_dump(mode="json")},
            )


def _known_cards(derivation: Derivation) -> dict[int, str]:
    """The card that says the same, of each decision that is known already."""
    known = (left for left in derivation.left_out if left.reason is LeftOut.Reason.ALREADY_KNOWN)
    return {left.seq: left.card_id for left in known if left.card_id}


def _with_links(content: CardContent, targets: Mapping[int, str]) -> CardContent:
    """The same with `seq:N` links turned into links to the cards of those decisions, where they have one."""
    links = (
        Link(relation=link.relation, target=targets.get(decision_of(link.target) or 0, link.target))
        for link in content.links
    )
    return content.model_copy(update={"links": tuple(dict.fromkeys(links))})


def _not_brought(content: CardContent, card: MemoryRecord) -> tuple[str, ...]:
    """What adding a source leaves out: the existing card is not revised."""
    warnings = []
    held = {fold(concept) for concept in card.concepts}
    if concepts := sorted(concept for concept in content.concepts if fold(concept) not in held):
        warnings.append(f"{card.id} does not get the concepts {', '.join(concepts)}: edit it if they belong there")
    if links := [f"{link.relation} {link.target}" for link in content.links if link not in card.links]:
        warnings.append(f"{card.id} does not get the links {', '.join(links)}: link it if they belong there")
    return tuple(warnings)
