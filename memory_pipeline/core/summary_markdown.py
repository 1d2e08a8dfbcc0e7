"""A session's summary as Markdown. Whatever the session says is escaped; headings and lists are ours alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memory_pipeline.core.cards import CardStatus
from memory_pipeline.core.display import LONGEST_CELL, plain
from memory_pipeline.core.effective import Status
from memory_pipeline.core.markdown import escape
from memory_pipeline.core.summary import (
    Approved,
    Concept,
    Decided,
    Hidden,
    Known,
    Record,
    SessionSummary,
    Waiting,
)

LONGEST_PAGE = 100_000
"""Characters of a page of many sessions. It is kept with every run that shows it. Ten concepts of each kind, whatever
their texts, fit.
"""

_LONGEST_SEQS = 80
"""Characters of the seqs of one concept: what stands behind it has to fit beside them."""

_NO_CARD = {
    Record.HISTORY: "no card: only the session's file says so",
    Record.MISSING: "no card: it was marked at the gate and the registry has lost it",
}
_NOT_TOLD = {
    Hidden.TABLE: "decisions about a table",
    Hidden.NO_CONCEPT: "markers on what is no clarified concept",
    Hidden.STALE: "markers that were rolled back",
}


def summary_markdown(summary: SessionSummary, *, rows: int | None = None, longest: int = LONGEST_CELL) -> str:
    """One session.

    Args:
        rows: concepts of each kind that are shown; none shows all.
        longest: characters of each text.
    """
    return "\n\n".join(_blocks(summary, rows, longest)) + "\n"


def summaries_markdown(summaries: Iterable[SessionSummary], total: int, *, rows: int) -> str:
    """A page of sessions out of `total`: as many as fit, and how many are left out."""
    pages: list[str] = []
    room = LONGEST_PAGE
    for summary in summaries:
        page = summary_markdown(summary, rows=rows)
        room -= len(page)
        if room < 0:
            break
        pages.append(page)
    if rest := total - len(pages):
        pages.append(f"Older sessions, not shown: {rest}.\n")
    return "\n".join(pages) or "No session yet.\n"


def _blocks(summary: SessionSummary, rows: int | None, longest: int) -> Iterator[str]:
    yield f"## Session {escape(summary.session)}"
    if summary.question:
        yield f"> {escape(summary.question, longest)}"
    kinds: tuple[tuple[str, Sequence[Concept]], ...] = (
        ("Promoted", summary.approved),
        ("Declined", summary.declined),
        ("Known already", summary.known),
        ("To decide", summary.pending),
    )
    for title, concepts in kinds:
        if concepts:
            yield f"### {title} ({len(concepts)})"
            yield from (_item(one, longest) for one in concepts[:rows])
            if rest := len(concepts[rows:] if rows is not None else ()):
                yield f"More, not shown: {rest}."
    if not any(concepts for _, concepts in kinds):
        yield "Nothing was promoted or declined, and nothing waits."
    if summary.hidden:
        yield f"Not told: {', '.join(f'{_NOT_TOLD[why]} ({count})' for why, count in summary.hidden.items())}."


def _item(concept: Concept, longest: int) -> str:
    """A list item, for cells of a table do not wrap in the UI. Each text is a block of its own, so that letters that
    run from right to left carry no other text with them.
    """
    seqs = plain(f"seq {', '.join(map(str, concept.seqs))}", _LONGEST_SEQS)
    blocks = [
        f"**{escape(concept.subject, longest) or '(blank)'}**",
        escape(concept.detail, longest),
        escape(concept.rationale, longest),
        escape("; ".join(filter(None, (seqs, note_on(concept)))), longest),
    ]
    return "- " + "\n\n  ".join(filter(None, blocks))


def note_on(concept: Concept) -> str:
    """What there is to know of a concept beside its text, in plain words: its card, or what speaks against it."""
    notes: list[str] = []
    match concept:
        case Approved():
            notes.append(_card(concept))
        case Known():
            notes.append(concept.card_id)
        case Waiting():
            notes += concept.warnings
    if isinstance(concept, Decided) and concept.status is not Status.EFFECTIVE:
        notes.append(f"the decision is {concept.status}")
    return "; ".join(notes)


def _card(concept: Approved) -> str:
    if concept.card_id is None:
        return _NO_CARD[concept.record]
    active = concept.card_status is CardStatus.ACTIVE
    return concept.card_id if active else f"{concept.card_id} ({concept.card_status})"
