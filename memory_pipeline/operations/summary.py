"""Sessions told in short: what of each was promoted, what was declined, what still waits for a reviewer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from memory_pipeline.core.errors import WorkspaceRetired
from memory_pipeline.core.summary import SessionSummary, Waiting, cited_by, summarise
from memory_pipeline.core.text import sha256
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.inbox import read_session
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.summaries import sessions_with_rows

SHOWN = 20
"""Sessions, and undecided candidates, that a summary of a workspace keeps."""

_BATCH = 50
"""Sessions whose cited cards are read by one query."""


@dataclass(frozen=True)
class WorkspaceSummary:
    """Every session of a workspace in figures; the newest ones, and the newest candidates, in full.

    `undecided` are candidates, `undecided_sessions` the sessions that have any, whether they are shown or not.
    """

    newest: tuple[SessionSummary, ...]
    waiting: tuple[tuple[str, Waiting], ...]
    sessions: int
    cards: int
    approved: int
    declined: int
    undecided: int
    undecided_sessions: int
    hidden: int
    drift: int
    data_version: str


def summarise_session(services: Services, workspace: str, session_id: str) -> SessionSummary:
    """Read the session's inbox, then tell the session; of a retired workspace, what was read before.

    Raises:
        UnknownSession: nothing was ever written to it.
    """
    with contextlib.suppress(WorkspaceRetired):
        read_session(services, workspace, session_id)
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        settings = workspaces.get(tx, workspace)
        ledger.require_session(tx, workspace, session_id)
        return next(_summaries(tx, settings, session_id))


def summarise_workspace(services: Services, workspace: str, *, shown: int = SHOWN) -> WorkspaceSummary:
    """Tell every session of a workspace, newest first: one query, and no more in memory than what is shown."""
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        tally = _Tally(shown)
        for summary in _summaries(tx, workspaces.get(tx, workspace)):
            tally.add(summary)
    return tally.result()


def _summaries(tx: Transaction, workspace: Workspace, session_id: str | None = None) -> Iterator[SessionSummary]:
    """Sessions of a workspace, newest first; cards that they cite are read for many at a time."""
    sessions = sessions_with_rows(tx, workspace.slug, session_id)
    while batch := list(islice(sessions, _BATCH)):
        cited = cards.get_many(tx, workspace.slug, sorted(set().union(*(cited_by(rows) for _, rows in batch))))
        for session, rows in batch:
            yield summarise(session, rows, workspace=workspace, cited=cited)


class _Tally:
    """Adds sessions up, newest first."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._newest: list[SessionSummary] = []
        self._waiting: list[tuple[str, Waiting]] = []
        self._cards: set[str] = set()
        self._digests: list[str] = []
        self._approved = self._declined = self._undecided = self._undecided_sessions = self._hidden = self._drift = 0

    def add(self, summary: SessionSummary) -> None:
        """Count one more session."""
        if len(self._newest) < self._shown:
            self._newest.append(summary)
        waiting = summary.pending[: self._shown - len(self._waiting)]
        self._waiting += [(summary.session, candidate) for candidate in waiting]
        self._cards |= {one.card_id for one in summary.approved if one.card_id}
        self._digests.append(sha256(summary.model_dump_json()))
        self._approved += len(summary.approved)
        self._declined += len(summary.declined)
        self._undecided += summary.undecided
        self._undecided_sessions += bool(summary.undecided)
        self._hidden += sum(summary.hidden.values())
        self._drift += summary.drift

    def result(self) -> WorkspaceSummary:
        """What came together. The data version changes with any verdict and any candidate of any session."""
        return WorkspaceSummary(
            newest=tuple(self._newest),
            waiting=tuple(self._waiting),
            sessions=len(self._digests),
            cards=len(self._cards),
            approved=self._approved,
            declined=self._declined,
            undecided=self._undecided,
            undecided_sessions=self._undecided_sessions,
            hidden=self._hidden,
            drift=self._drift,
            data_version=sha256("\n".join(sorted(self._digests))),
        )
