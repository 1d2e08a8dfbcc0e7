"""When a workspace is well: rules over counts and ages, pure, for whoever checks and whoever shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.display import counted

LATE_SECONDS = 600.0
"""A change that the index has not followed for so long is late: propagation is tried many times in between."""


class Verdict(BaseModel):
    """What a rule came to. One that warns asks for a look; another one says that answers may be wrong or missing."""

    model_config = ConfigDict(frozen=True)

    passed: bool
    told: str
    warns: bool = False
    figures: Mapping[str, int | float | str] = {}


class Followed(Protocol):
    """How far an index follows its registry, in cards."""

    @property
    def active(self) -> int: ...

    @property
    def current(self) -> int: ...

    @property
    def leftover(self) -> int: ...

    @property
    def pending(self) -> int: ...

    @property
    def parked(self) -> int: ...

    @property
    def oldest_behind(self) -> datetime | None: ...


def freshness(measure: Followed | None, now: datetime) -> Verdict:
    """The index holds the newest revision of every card, or the oldest change that it lacks is still young."""
    if measure is None:
        return Verdict(passed=False, told="the workspace was never indexed")
    behind = measure.active - measure.current
    changed = f"{counted(behind, 'card')} changed"
    lag = age(measure.oldest_behind, now)
    figures = {"cards_behind": behind, "lag_seconds": round(lag, 1)}
    if lag >= LATE_SECONDS:
        return Verdict(passed=False, told=f"{changed} up to {told_age(lag)} ago", figures=figures)
    told = f"{changed} {told_age(lag)} ago at most" if behind else "every change is in the index"
    return Verdict(passed=True, told=told, figures=figures)


def backlog(pending: int, parked: int, oldest: datetime | None, now: datetime) -> Verdict:
    """Nothing waits for long, and nothing was given up."""
    waited = age(oldest, now)
    figures = {"pending": pending, "parked": parked, "oldest_seconds": round(waited, 1)}
    wrong = []
    if parked:
        wrong.append(f"{counted(parked, 'card is', 'cards are')} parked: all tries are used up")
    if waited >= LATE_SECONDS:
        wrong.append(f"{_waiting(pending)}, the oldest for {told_age(waited)}")
    return Verdict(passed=not wrong, told="; ".join(wrong) or _waiting(pending), figures=figures)


def fingerprint(differences: Sequence[str], unknown: str = "") -> Verdict:
    """The serving index was built as one built now would be. It serves on until it is rebuilt, so this only warns.

    Args:
        unknown: why the differences cannot be told.
    """
    if unknown:
        return Verdict(passed=False, told=f"whether a rebuild is due cannot be told: {unknown}", warns=True)
    told = f"a rebuild is due: {'; '.join(differences)}" if differences else "built as it would be now"
    return Verdict(passed=not differences, told=told, warns=True, figures={"differences": len(differences)})


def accepted(quarantined: int, refused_files: int) -> Verdict:
    """Everything that came in was taken. What was not waits for a person and harms nothing: a warning."""
    wrong = []
    if quarantined:
        wrong.append(f"{counted(quarantined, 'line is', 'lines are')} in quarantine")
    if refused_files:
        wrong.append(f"{counted(refused_files, 'file was', 'files were')} refused whole")
    return Verdict(
        passed=not wrong,
        told="; ".join(wrong) or "every line was taken",
        warns=True,
        figures={"quarantined": quarantined, "files_refused": refused_files},
    )


def promotions(lines: Sequence[str]) -> Verdict:
    """Every promotion that a ledger tells of has its card. One without is a human's to judge: a warning."""
    told = f"no card comes from {counted(len(lines), 'promotion')}: {_named(lines)}" if lines else ""
    told = told or "every promotion has its card"
    return Verdict(passed=not lines, told=told, warns=True, figures={"without_card": len(lines)})


def gate(forbidden: Sequence[str], rewritten: Sequence[str]) -> Verdict:
    """Every card is of a type of its kind, and says what its newest revision kept: nothing got past the reviewer."""
    wrong = []
    if forbidden:
        wrong.append(f"{_named(forbidden)}: of a type that its kind cannot have")
    if rewritten:
        wrong.append(f"{_named(rewritten)}: changed without a revision")
    return Verdict(
        passed=not wrong,
        told="; ".join(wrong) or "every card is as it was decided",
        figures={"forbidden": len(forbidden), "rewritten": len(rewritten)},
    )


def ailments(extent: Followed, *, serving: bool, oldest_pending: datetime | None, now: datetime) -> list[str]:
    """What is wrong with one workspace, in short. Empty: it is well, or about to be."""
    found = []
    if not serving and extent.active:
        found.append("its index does not serve")
    if serving and age(extent.oldest_behind, now) >= LATE_SECONDS:
        found.append(f"{counted(extent.active - extent.current, 'card is', 'cards are')} not in the index")
    if extent.leftover and not extent.pending:
        found.append(f"{counted(extent.leftover, 'card that is gone has', 'cards that are gone have')} a point")
    if extent.parked:
        found.append(f"{counted(extent.parked, 'card is', 'cards are')} parked")
    if age(oldest_pending, now) >= LATE_SECONDS:
        found.append(f"{_waiting(extent.pending)} for {told_age(age(oldest_pending, now))}")
    return found


def age(since: datetime | None, now: datetime) -> float:
    """Seconds since then; 0 for none, and for what two clocks put into the future."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def told_age(seconds: float) -> str:
    """An age in the largest unit that says something."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _waiting(cards: int) -> str:
    return counted(cards, "card waits", "cards wait")


def _named(cards: Sequence[str], shown: int = 5) -> str:
    return ", ".join(cards[:shown]) + (f" and {len(cards) - shown} more" if len(cards) > shown else "")
