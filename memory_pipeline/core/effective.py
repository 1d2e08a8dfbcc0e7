"""Which entries of a session count: the pure reference that the SQL function `memory.session_status` is held to.

Read from the highest number down. Two kinds of later entry take an earlier one out:

- `phase_rolled_back` to Fk makes every decision before it in phase Fk or later *stale*;
  `phase_reopened` Fk every decision before it in a phase later than Fk;
- an effective `decision_retracted` makes the decision that it names *retracted*. A retraction is a decision itself: it
  can be stale, and it can be retracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from memory_pipeline.core.ledger import CONTROL_TYPES, DECISION_TYPES, MARKER_TYPES, EntryType
from memory_pipeline.core.references import decision_of, phase_number, phase_of

_NEVER = 9
"""A phase number above F8: nothing is stale from there on."""


class Status(StrEnum):
    """What one entry is worth today."""

    EFFECTIVE = "effective"
    STALE = "stale"
    RETRACTED = "retracted"
    CONTROL = "control"
    INERT = "inert"


class Row(NamedTuple):
    """What evaluation needs of an entry.

    `seq` is the harness's number; none for a row of the pipeline, which stands after harness row `after_seq` and has
    the number `pseq` in a sequence of its own.
    """

    seq: int | None
    type: str
    phase: str | None
    detail: str
    after_seq: int | None = None
    pseq: int | None = None

    @property
    def position(self) -> int:
        """Where the row stands on the harness's axis."""
        return self.seq if self.seq is not None else self.after_seq or 0


def evaluate(rows: Sequence[Row]) -> list[Status]:
    """Give each row its status, in the order given.

    The rows are one session's, complete; the cost is that of sorting them.
    """
    retractable = {row.seq for row in rows if row.seq is not None and row.type in DECISION_TYPES}
    statuses: dict[int, Status] = {}
    retracted: set[int | None] = set()
    for index, stale_from in _highest_first(rows):
        row = rows[index]
        statuses[index] = _status(row, stale_from, retracted, retractable)
        if row.type == EntryType.DECISION_RETRACTED and statuses[index] is Status.EFFECTIVE:
            retracted.add(_target(row, retractable))
    return [statuses[index] for index in range(len(rows))]


def _highest_first(rows: Sequence[Row]) -> Iterable[tuple[int, int]]:
    """Indices from the highest position down, each with the phase from which a row there is stale."""
    order = sorted(range(len(rows)), key=lambda index: rows[index].position, reverse=True)
    stale_from = pending = _NEVER
    position = None
    for index in order:
        row = rows[index]
        if row.position != position:  # a boundary counts for what stands strictly before it
            position, stale_from = row.position, min(stale_from, pending)
        yield index, stale_from
        pending = min(pending, _boundary(row))


def _boundary(row: Row) -> int:
    """The phase from which everything before this row is stale."""
    phase = phase_of(row.detail)
    if row.seq is None or phase is None:
        return _NEVER
    match row.type:
        case EntryType.PHASE_ROLLED_BACK:
            return phase
        case EntryType.PHASE_REOPENED:
            return phase + 1
        case _:
            return _NEVER


def _status(row: Row, stale_from: int, retracted: set[int | None], retractable: set[int]) -> Status:
    if row.type in CONTROL_TYPES:
        return Status.CONTROL
    if row.type not in DECISION_TYPES and row.type not in MARKER_TYPES:
        return Status.INERT
    phase = phase_number(row.phase)
    if phase is not None and phase >= stale_from:
        return Status.STALE
    if row.seq is not None and row.seq in retracted and row.type in DECISION_TYPES:
        return Status.RETRACTED
    if row.type == EntryType.DECISION_RETRACTED and _target(row, retractable) is None:
        return Status.INERT
    return Status.EFFECTIVE


def _target(row: Row, retractable: set[int]) -> int | None:
    """The decision that a retraction names; none where it names nothing before it that could be retracted."""
    target = decision_of(row.detail)
    return target if target in retractable and row.seq is not None and target < row.seq else None
