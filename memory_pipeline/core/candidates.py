"""What a session offers to its reviewer: effective decisions in, candidates out. Pure and deterministic.

effective decisions -> clarified concepts -> not already promoted -> not declined -> not a memory chosen as it is
-> equivalents folded into the first -> in seq order
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, MemoryRecord, clean_content
from memory_pipeline.core.ledger import REUSABLE_TYPES, LedgerEntry
from memory_pipeline.core.references import cards_of
from memory_pipeline.core.text import fold, sha256
from memory_pipeline.core.workspace import Workspace

_TABLE_NAME = re.compile(r"(?:[\w$]+\.){0,2}(?:fact|dim)_[\w$]+")
_QUOTES = re.compile(r"[\"'`\[\]]")
_HUMAN = "human:"


_Group: TypeAlias = list[tuple[LedgerEntry, CardContent]]
"""Equivalent decisions in seq order, each with the card that it would become."""


class LeftOut(BaseModel):
    """A clarified concept that is not offered, and why."""

    model_config = ConfigDict(frozen=True)

    class Reason(StrEnum):
        """Why a clarified concept never reaches the reviewer."""

        TABLE_NAME = "table_name"
        ALREADY_PROMOTED = "already_promoted"
        DECLINED = "declined"
        ALREADY_KNOWN = "already_known"
        RETRACTED = "retracted"
        STALE = "stale"

    seq: int
    subject: str
    reason: Reason
    card_id: str | None = Field(default=None, description="the card that it became, or that says the same")


class Candidate(BaseModel):
    """One clarified concept, offered for promotion. `folded_seqs` are its equivalents, first seq not among them.

    `derived_from` are the cards that its decisions cite: it came from choosing one of them, and says something else.
    `humans` are the people who made these decisions.
    """

    model_config = ConfigDict(frozen=True)

    seq: int
    folded_seqs: tuple[int, ...] = ()
    content: CardContent
    derived_from: tuple[str, ...] = ()
    humans: tuple[str, ...] = ()
    preselected: bool = True
    warnings: tuple[str, ...] = ()
    sha256: str = Field(default="", description="hash of what would be written: the card's content and the folded set")

    @property
    def seqs(self) -> tuple[int, ...]:
        """All decisions for which this candidate stands."""
        return (self.seq, *self.folded_seqs)


class Derivation(BaseModel):
    """All candidates of a session, and the concepts left out."""

    model_config = ConfigDict(frozen=True)

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]


def derive(
    effective: Sequence[LedgerEntry],
    *,
    workspace: Workspace,
    question: str,
    promoted: Mapping[int, str],
    declined: Iterable[int],
    cited: Mapping[str, MemoryRecord] | None = None,
) -> Derivation:
    """Derive a session's candidates.

    Args:
        effective: the session's effective decisions, of every type, in any order.
        workspace: gives the default schema of dependencies, and whether four eyes are asked for.
        question: the session's question, kept with each card as its context.
        promoted: seqs that have a card already, and that card.
        declined: seqs named by an effective marker of refusal.
        cited: the cards that these concepts cite (`cited_cards`), as they are now; those that do not exist are missing.
    """
    cited = cited or {}
    concepts = sorted((entry for entry in effective if entry.type in REUSABLE_TYPES), key=lambda entry: entry.seq)
    tables = tables_of(effective)
    declined = frozenset(declined)
    left_out: list[LeftOut] = []
    groups: dict[tuple[str, str, str], _Group] = {}
    for entry in concepts:
        if reason := _reason_to_leave_out(entry, promoted, declined):
            card = promoted.get(entry.seq)
            left_out.append(LeftOut(seq=entry.seq, subject=entry.subject or "", reason=reason, card_id=card))
            continue
        content = card_of(entry, workspace=workspace, question=question)
        if known := _said_by(content, entry, cited):
            reason = LeftOut.Reason.ALREADY_KNOWN
            left_out.append(LeftOut(seq=entry.seq, subject=entry.subject or "", reason=reason, card_id=known))
            continue
        identity = (content.fingerprint, content.dependencies_sha256, content.scope_sha256)
        groups.setdefault(identity, []).append((entry, content))
    candidates = (_candidate(group, tables, cited, four_eyes=workspace.four_eyes) for group in groups.values())
    return Derivation(candidates=tuple(candidates), left_out=tuple(left_out))


def card_of(entry: LedgerEntry, *, workspace: Workspace, question: str) -> CardContent:
    """The card that a clarified concept would become. New memories bring no tables of their own."""
    content = CardContent(
        type=entry.type,
        subject=entry.subject or "",
        detail=entry.detail,
        rationale=entry.rationale,
        question_context=question.strip(),
        scope=entry.scope,
        concepts=entry.concepts,
        dependencies=entry.dependencies,
        links=entry.links,
    )
    return clean_content(content, workspace.default_schema)


def cited_cards(entry: LedgerEntry) -> tuple[str, ...]:
    """The cards that a concept cites in its rationale or names in `memories`: those that were chosen for it in F2."""
    return tuple(dict.fromkeys(card for text in (*entry.memories, entry.rationale) for card in cards_of(text)))


def is_same_human(one: str, other: str) -> bool:
    """Whether two identities name one person: they are written by hand on one side, so case does not count."""
    return fold(one) == fold(other)


def is_table_name(subject: str) -> bool:
    """Whether a subject is only the name of a fact or dimension table, by its form, however it is quoted."""
    return _TABLE_NAME.fullmatch(fold(_QUOTES.sub("", subject))) is not None


def _reason_to_leave_out(
    entry: LedgerEntry, promoted: Container[int], declined: frozenset[int]
) -> LeftOut.Reason | None:
    if is_table_name(entry.subject or ""):
        return LeftOut.Reason.TABLE_NAME
    if entry.seq in promoted:
        return LeftOut.Reason.ALREADY_PROMOTED
    if entry.seq in declined:
        return LeftOut.Reason.DECLINED
    return None


def _said_by(content: CardContent, entry: LedgerEntry, cited: Mapping[str, MemoryRecord]) -> str | None:
    """The cited memory that says just this, in these places and this scope: it was chosen and left as it is."""
    for card_id in cited_cards(entry):
        card = cited.get(card_id)
        if card and card.kind is CardKind.MEMORY and card.status is CardStatus.ACTIVE and content.equivalent_to(card):
            return card_id
    return None


def _candidate(
    group: _Group, tables: frozenset[str], cited: Mapping[str, MemoryRecord], *, four_eyes: bool
) -> Candidate:
    (first, content), folded = group[0], tuple(entry.seq for entry, _ in group[1:])
    named = tuple(dict.fromkeys(card for entry, _ in group for card in cited_cards(entry)))
    derived_from = tuple(card for card in named if card in cited)
    humans = _humans(entry for entry, _ in group)
    is_table = fold(content.subject) in tables
    warnings: list[str] = []
    if is_table:
        warnings.append(f"{content.subject!r} is also a table of this question: promote it only if it is a concept too")
    warnings += [f"it cites {card}, which is not in this workspace" for card in named if card not in cited]
    warnings += [
        f"it cites {card}, which is {cited[card].status}"
        for card in derived_from
        if cited[card].status is not CardStatus.ACTIVE
    ]
    warnings += _not_brought(group)
    if four_eyes and humans:
        warnings.append(f"decided by {', '.join(humans)}: somebody else has to promote it")
    return Candidate(
        seq=first.seq,
        folded_seqs=folded,
        content=content,
        derived_from=derived_from,
        humans=humans,
        preselected=not is_table and not derived_from,
        warnings=tuple(warnings),
        sha256=sha256(f"{folded}\n{content.model_dump_json()}"),
    )


def _not_brought(group: _Group) -> list[str]:
    """What equivalents say beyond the first, whose card it becomes: it is lost unless a human adds it."""
    (first, content), warnings = group[0], []
    concepts, links = {fold(concept) for concept in content.concepts}, set(content.links)
    for entry, folded in group[1:]:
        more = [concept for concept in folded.concepts if fold(concept) not in concepts]
        more += [f"{link.relation} {link.target}" for link in folded.links if link not in links]
        if more:
            warnings.append(
                f"seq:{entry.seq} also has {', '.join(more)}, which the card of seq:{first.seq} will not get"
            )
    return warnings


def _humans(entries: Iterable[LedgerEntry]) -> tuple[str, ...]:
    """Identities of the people who decided, each once; a model is nobody's eyes."""
    actors = ((entry.actor or "").strip() for entry in entries)
    names = (actor[len(_HUMAN) :].strip() for actor in actors if actor.casefold().startswith(_HUMAN))
    return tuple(dict.fromkeys(name for name in names if name))


def tables_of(effective: Iterable[LedgerEntry]) -> frozenset[str]:
    """Folded names of the tables that the question's schema linking took up, with and without their schema."""
    names: set[str] = set()
    for entry in effective:
        if entry.type == "table_promoted":
            named = (entry.subject or "", *entry.tables)
            names.update(fold(part) for name in named for part in (name, name.rsplit(".", 1)[-1]))
    return frozenset(names - {""})
