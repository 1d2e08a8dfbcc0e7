"""What became of one session's concepts, read with today's rules: promoted first, then declined, then what waits.

Nothing is stored: a summary is made of the session's rows each time it is asked for, so that an old session is told by
the rules of today.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, computed_field

from memory_pipeline.core.candidates import (
    Candidate,
    Derivation,
    LeftOut,
    card_of,
    cited_cards,
    derive,
    is_table_name,
    tables_of,
)
from memory_pipeline.core.cards import CardStatus, MemoryRecord
from memory_pipeline.core.effective import Status
from memory_pipeline.core.ledger import MARKER_TYPES, REUSABLE_TYPES, EntryType, LedgerDraft, LedgerEntry
from memory_pipeline.core.references import decision_of
from memory_pipeline.core.text import fold
from memory_pipeline.core.workspace import Workspace


class CardState(NamedTuple):
    """The card behind a decision, and whether it is still active."""

    card_id: str
    status: CardStatus


class SessionRow(NamedTuple):
    """One row of a session with what it is worth today.

    `entry` is a `LedgerEntry`, which has a seq, for a row of the harness, and a bare draft for one of the pipeline.
    """

    entry: LedgerDraft
    status: Status
    card: CardState | None = None


class Record(StrEnum):
    """What stands behind a promotion. All but a card is drift."""

    CARD = "card"
    HISTORY = "history"
    """A line of the session's file tells of it; the registry has no card."""
    MISSING = "missing"
    """The gate marked it; the registry has no card."""


class Hidden(StrEnum):
    """Why something that was decided is not told."""

    TABLE = "table"
    """A decision whose subject is a table: of this question's schema linking, or by the form of its name."""
    NO_CONCEPT = "no_concept"
    """A marker that names no clarified concept: a decision of another type, or nothing."""
    STALE = "stale"
    """A marker that was rolled back."""


class Concept(BaseModel):
    """A clarified concept as it was written. `seqs` are all equivalent decisions for which it is told."""

    model_config = ConfigDict(frozen=True)

    seqs: tuple[int, ...]
    subject: str
    detail: str
    rationale: str


class Decided(Concept):
    """A concept with a verdict. `status` is what its decision is worth today."""

    status: Status


class Approved(Decided):
    """A promoted concept, and the card that it became or joined."""

    record: Record
    card_id: str | None = None
    card_status: CardStatus | None = None


class Known(Concept):
    """A memory that was chosen and left as it is: nothing to decide."""

    card_id: str


class Waiting(Concept):
    """A candidate that nobody decided on."""

    preselected: bool
    warnings: tuple[str, ...] = ()


class SessionSummary(BaseModel):
    """One session. Each list is in order of the first seq.

    `undecided` counts every candidate of the gate; `pending` leaves out those whose subject is a table.
    """

    model_config = ConfigDict(frozen=True)

    session: str
    question: str
    approved: tuple[Approved, ...]
    declined: tuple[Decided, ...]
    known: tuple[Known, ...]
    pending: tuple[Waiting, ...]
    undecided: int
    hidden: dict[Hidden, int] = Field(description="what is not told, by reason")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def drift(self) -> int:
        """Promotions that the ledger tells of and the registry has no card for."""
        return sum(one.record is not Record.CARD for one in self.approved)


def summarise(
    session: str, rows: Sequence[SessionRow], *, workspace: Workspace, cited: Mapping[str, MemoryRecord] | None = None
) -> SessionSummary:
    """Tell a session from its rows.

    Args:
        rows: of both origins, in order. Needed are the types of `SUMMARISED`; others change nothing.
        workspace: gives the default schema of dependencies.
        cited: cards that the session's concepts cite (`cited_by`), as they are now.
    """
    return _Session(session, rows, workspace, cited or {}).summary()


SUMMARISED = frozenset({EntryType.SESSION_OPENED, EntryType.TABLE_PROMOTED, *REUSABLE_TYPES, *MARKER_TYPES})
"""Types of rows of which a summary is made."""


def cited_by(rows: Iterable[SessionRow]) -> set[str]:
    """Ids of the cards that a session's clarified concepts cite."""
    return {card for row in rows if row.entry.type in REUSABLE_TYPES for card in cited_cards(_entry(row))}


class _Verdict(NamedTuple):
    """The last word on one decision: promoted with a card, promoted without one, or declined."""

    record: Record | None
    card: CardState | None = None


class _Session:
    """One session while it is summarised."""

    def __init__(
        self, name: str, rows: Sequence[SessionRow], workspace: Workspace, cited: Mapping[str, MemoryRecord]
    ) -> None:
        self._name = name
        self._workspace = workspace
        self._question = _question(rows)
        decisions = {row.entry.seq: row for row in rows if isinstance(row.entry, LedgerEntry)}
        self._concepts = {seq: row for seq, row in decisions.items() if row.entry.type in REUSABLE_TYPES}
        effective = [_entry(row) for row in decisions.values() if row.status is Status.EFFECTIVE]
        self._tables = tables_of(effective)
        self._markers = [row for row in rows if row.entry.type in MARKER_TYPES]
        self._derivation = derive(
            effective,
            workspace=workspace,
            question=self._question,
            promoted={seq: row.card.card_id for seq, row in self._concepts.items() if row.card},
            declined=self._declined_seqs(),
            cited=cited,
        )

    def summary(self) -> SessionSummary:
        """Everything that is told, and how much is not."""
        verdicts, hidden = self._verdicts()
        groups = list(self._groups(verdicts))
        return SessionSummary(
            session=self._name,
            question=self._question,
            approved=tuple(self._approved(seqs, verdict) for seqs, verdict in groups if verdict.record),
            declined=tuple(self._decided(seqs) for seqs, verdict in groups if not verdict.record),
            known=tuple(self._known(self._derivation)),
            pending=tuple(_waiting(each) for each in self._derivation.candidates if not self._is_table(each.seq)),
            undecided=len(self._derivation.candidates),
            hidden={reason: hidden[reason] for reason in Hidden if hidden[reason]},
        )

    def _declined_seqs(self) -> list[int]:
        """What the gate does not offer again, whatever the marker is on."""
        return [
            target
            for row in self._markers
            if row.entry.type == EntryType.MEMORY_PROMOTION_DECLINED
            and row.status is Status.EFFECTIVE
            and (target := decision_of(row.entry.detail)) is not None
        ]

    def _verdicts(self) -> tuple[dict[int, _Verdict], Counter[Hidden]]:
        """The last word on each concept: a card outweighs every marker, a later marker an earlier one."""
        found: dict[int, _Verdict] = {}
        hidden: Counter[Hidden] = Counter()
        for row in self._markers:
            target = decision_of(row.entry.detail)
            if target is None or target not in self._concepts:
                hidden[Hidden.NO_CONCEPT] += 1
            elif self._concepts[target].card:
                continue
            elif row.status is not Status.EFFECTIVE:
                hidden[Hidden.STALE] += 1
            else:
                found[target] = _Verdict(_record(row))
        found |= {seq: _Verdict(Record.CARD, row.card) for seq, row in self._concepts.items() if row.card}
        tables = {seq for seq in found if self._is_table(seq)}
        undecided = {seq for candidate in self._derivation.candidates for seq in candidate.seqs}
        undecided |= {left.seq for left in self._derivation.left_out if left.reason is LeftOut.Reason.TABLE_NAME}
        hidden[Hidden.TABLE] = len(tables | {seq for seq in undecided if self._is_table(seq)})
        return {seq: verdict for seq, verdict in sorted(found.items()) if seq not in tables}, hidden

    def _groups(self, verdicts: Mapping[int, _Verdict]) -> Iterator[tuple[list[int], _Verdict]]:
        """Equivalent decisions with one verdict, told as one, as the gate folds them."""
        groups: dict[tuple[str | None, ...], tuple[list[int], _Verdict]] = {}
        for seq, verdict in verdicts.items():
            content = card_of(_entry(self._concepts[seq]), workspace=self._workspace, question=self._question)
            identity = (content.fingerprint, content.dependencies_sha256, content.scope_sha256)
            key = (verdict.record, verdict.card and verdict.card.card_id, *identity)
            groups.setdefault(key, ([], verdict))[0].append(seq)
        yield from groups.values()

    def _approved(self, seqs: Sequence[int], verdict: _Verdict) -> Approved:
        assert verdict.record is not None  # noqa: S101 - told apart by the caller
        card = verdict.card
        return Approved(
            **dict(self._decided(seqs)),
            record=verdict.record,
            card_id=card.card_id if card else None,
            card_status=card.status if card else None,
        )

    def _decided(self, seqs: Sequence[int]) -> Decided:
        statuses = [self._concepts[seq].status for seq in seqs]
        status = Status.EFFECTIVE if Status.EFFECTIVE in statuses else statuses[0]
        return Decided(**self._told(seqs[0]), seqs=tuple(seqs), status=status)

    def _known(self, derivation: Derivation) -> Iterator[Known]:
        for left in derivation.left_out:
            if left.reason is LeftOut.Reason.ALREADY_KNOWN and left.card_id and not self._is_table(left.seq):
                yield Known(**self._told(left.seq), seqs=(left.seq,), card_id=left.card_id)

    def _told(self, seq: int) -> dict[str, str]:
        entry = self._concepts[seq].entry
        return {"subject": entry.subject or "", "detail": entry.detail, "rationale": entry.rationale}

    def _is_table(self, seq: int) -> bool:
        subject = self._concepts[seq].entry.subject or ""
        return is_table_name(subject) or fold(subject) in self._tables


def _question(rows: Iterable[SessionRow]) -> str:
    """Of the last opening that has one."""
    asked = [
        row.entry.question
        for row in rows
        if row.entry.type == EntryType.SESSION_OPENED
        and isinstance(row.entry, LedgerEntry)
        and row.entry.question is not None
    ]
    return asked[-1] if asked else ""


def _record(marker: SessionRow) -> Record | None:
    """What a marker alone tells: a promotion without a card by the file or by the gate, or a refusal."""
    if marker.entry.type == EntryType.MEMORY_PROMOTION_DECLINED:
        return None
    return Record.HISTORY if isinstance(marker.entry, LedgerEntry) else Record.MISSING


def _waiting(candidate: Candidate) -> Waiting:
    content = candidate.content
    return Waiting(
        seqs=candidate.seqs,
        subject=content.subject,
        detail=content.detail,
        rationale=content.rationale,
        preselected=candidate.preselected,
        warnings=candidate.warnings,
    )


def _entry(row: SessionRow) -> LedgerEntry:
    assert isinstance(row.entry, LedgerEntry)  # noqa: S101 - the pipeline writes markers alone
    return row.entry
