"""What a session offers to its reviewer: effective decisions in, candidates out. Pure and deterministic.

effective decisions -> clarified concepts -> not already promoted -> not declined
-> equivalents folded into the first -> in seq order
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.core.cards import CardContent, clean_content
from memory_pipeline.core.ledger import REUSABLE_TYPES, LedgerEntry
from memory_pipeline.core.text import fold, sha256
from memory_pipeline.core.workspace import Workspace

_TABLE_NAME = re.compile(r"(?:[\w$]+\.){0,2}(?:fact|dim)_[\w$]+")
_QUOTES = re.compile(r"[\"'`\[\]]")


class LeftOut(BaseModel):
    """A clarified concept that is not offered, and why."""

    model_config = ConfigDict(frozen=True)

    class Reason(StrEnum):
        """Why a clarified concept never reaches the reviewer."""

        TABLE_NAME = "table_name"
        ALREADY_PROMOTED = "already_promoted"
        DECLINED = "declined"
        RETRACTED = "retracted"
        STALE = "stale"

    seq: int
    subject: str
    reason: Reason


class Candidate(BaseModel):
    """One clarified concept, offered for promotion. `folded_seqs` are its equivalents, first seq not among them."""

    model_config = ConfigDict(frozen=True)

    seq: int
    folded_seqs: tuple[int, ...] = ()
    content: CardContent
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
    promoted: Iterable[int],
    declined: Iterable[int],
) -> Derivation:
    """Derive a session's candidates.

    Args:
        effective: the session's effective decisions, of every type, in any order.
        workspace: gives the default schema of dependencies.
        question: the session's question, kept with each card as its context.
        promoted: seqs that have a card already.
        declined: seqs named by an effective marker of refusal.
    """
    concepts = sorted((entry for entry in effective if entry.type in REUSABLE_TYPES), key=lambda entry: entry.seq)
    tables = _tables_of(effective)
    promoted, declined = frozenset(promoted), frozenset(declined)
    left_out: list[LeftOut] = []
    groups: dict[tuple[str, str, str], list[tuple[LedgerEntry, CardContent]]] = {}
    for entry in concepts:
        if reason := _reason_to_leave_out(entry, promoted, declined):
            left_out.append(LeftOut(seq=entry.seq, subject=entry.subject or "", reason=reason))
            continue
        content = card_of(entry, workspace=workspace, question=question)
        identity = (content.fingerprint, content.dependencies_sha256, content.scope_sha256)
        groups.setdefault(identity, []).append((entry, content))
    return Derivation(
        candidates=tuple(_candidate(group, tables) for group in groups.values()), left_out=tuple(left_out)
    )


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


def is_table_name(subject: str) -> bool:
    """Whether a subject is only the name of a fact or dimension table, by its form, however it is quoted."""
    return _TABLE_NAME.fullmatch(fold(_QUOTES.sub("", subject))) is not None


def _reason_to_leave_out(
    entry: LedgerEntry, promoted: frozenset[int], declined: frozenset[int]
) -> LeftOut.Reason | None:
    if is_table_name(entry.subject or ""):
        return LeftOut.Reason.TABLE_NAME
    if entry.seq in promoted:
        return LeftOut.Reason.ALREADY_PROMOTED
    if entry.seq in declined:
        return LeftOut.Reason.DECLINED
    return None


def _candidate(group: list[tuple[LedgerEntry, CardContent]], tables: frozenset[str]) -> Candidate:
    (first, content), folded = group[0], tuple(entry.seq for entry, _ in group[1:])
    warnings: tuple[str, ...] = ()
    if fold(content.subject) in tables:
        warnings = (f"{content.subject!r} is also a table of this question: promote it only if it is a concept too",)
    return Candidate(
        seq=first.seq,
        folded_seqs=folded,
        content=content,
        preselected=not warnings,
        warnings=warnings,
        sha256=sha256(f"{folded}\n{content.model_dump_json()}"),
    )


def _tables_of(effective: Iterable[LedgerEntry]) -> frozenset[str]:
    """Folded names of the tables that the question's schema linking took up, with and without their schema."""
    names: set[str] = set()
    for entry in effective:
        if entry.type == "table_promoted":
            named = (entry.subject or "", *entry.tables)
            names.update(fold(part) for name in named for part in (name, name.rsplit(".", 1)[-1]))
    return frozenset(names - {""})
