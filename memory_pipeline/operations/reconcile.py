"""Mending drift. What is derived is made anew from the registry; what a human decided is only put before a human.

Nothing is mended on a finding alone: each page is looked at once more while no other writer has the workspace, and what
is no longer so is left as it is. Only the workspace's own collection is ever touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.drift import Finding, Remedy, point_drift
from memory_pipeline.core.errors import IndexBusy
from memory_pipeline.core.projection import point_id
from memory_pipeline.index.points import PointId
from memory_pipeline.logs import operation
from memory_pipeline.operations.consistency import EXAMPLES, PAGE, DriftReport, Scan, Tally, check_consistency
from memory_pipeline.operations.embed import Progress
from memory_pipeline.operations.generation import ensure_generation, follow_alias
from memory_pipeline.operations.propagate import DrainReport, await_turn, drain
from memory_pipeline.operations.repairs import Proposed, propose_repairs, registry_findings
from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, generations, propagations
from memory_pipeline.store.database import Role, Transaction

WAIT_SECONDS = 60.0


class ReconcileReport(BaseModel):
    """What was found and what became of it; of a dry run, what was found alone.

    Attributes:
        queued: cards whose points are written whole.
        deleted: points that were deleted.
        doubtful: points that were found and, when looked at again, were no longer certain to be wrong; they stay.
        mended: what was mended of the collection itself and of its alias.
        drain: what still waits after it, and why.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    dry_run: bool
    found: DriftReport
    queued: int = 0
    deleted: int = 0
    doubtful: int = 0
    mended: tuple[str, ...] = ()
    proposals: Proposed | None = None
    drain: DrainReport | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be mended by a program."""
        return not self.dry_run and self.drain is not None and self.drain.settled and not self.doubtful


@operation(
    "reconcile",
    lambda report: {
        "differences": report.found.total,
        "queued": report.queued,
        "deleted": report.deleted,
        "doubtful": report.doubtful,
    },
)
def reconcile(
    services: Services,
    workspace: str,
    *,
    dry_run: bool = False,
    page: int = PAGE,
    examples: int = EXAMPLES,
    progress: Progress = lambda _: None,
) -> ReconcileReport:
    """Mend what `check_consistency` finds. A second call finds nothing.

    Args:
        dry_run: only find.
        progress: told how many cards were settled since the last call.

    Raises:
        WorkspaceRetired: nothing is derived for it.
        IncompatibleCollection: its collection has other vectors than the generation says; nothing of it is touched.
        RegistryRestored: its collection was written by a registry that had come further than this one; nothing of it
            is touched.
        IndexBusy: another writer kept the workspace for too long.
        EmbedderUnavailable: where no generation exists yet and none can be made.
        IndexUnavailable: the server cannot be asked.
    """
    if dry_run:
        found = check_consistency(services, workspace, page=page, examples=examples)
        return ReconcileReport(workspace=workspace, dry_run=True, found=found)
    return _Mending(services, workspace, page, progress).run(examples)


@dataclass
class _Mending:
    """One reconciliation on its way."""

    services: Services
    workspace: str
    page: int
    progress: Progress
    queued: int = 0
    deleted: int = 0
    doubtful: int = 0

    def run(self, examples: int) -> ReconcileReport:
        """Mend the collection, then its points, then drain, then tell a human what is a human's."""
        started = time.monotonic()
        tally = Tally(examples)
        structure = Scan.of(self.services, self.workspace, self.page).structure()
        tally.add(structure)
        self._drain()  # what waits is no drift, and a registry that may not write at all says so before it mends
        mended = self._mend_structure(structure)
        scan = Scan.of(self.services, self.workspace, self.page)
        for findings in scan.contents():
            tally.add(findings)
            self._mend(scan, findings)
        drained = self._drain()
        authoritative, proposed = registry_findings(self.services, self.workspace)
        tally.add(authoritative)
        return ReconcileReport(
            workspace=self.workspace,
            dry_run=False,
            found=scan.report(tally, proposed=proposed, seconds=time.monotonic() - started),
            queued=self.queued,
            deleted=self.deleted,
            doubtful=self.doubtful,
            mended=mended,
            proposals=propose_repairs(self.services, self.workspace),
            drain=drained,
        )

    def _drain(self) -> DrainReport:
        report = drain(self.services, self.workspace, wait=WAIT_SECONDS, hurry=True, progress=self.progress)
        if report.busy:
            raise IndexBusy(self.workspace)
        return report

    def _mend_structure(self, findings: Sequence[Finding]) -> tuple[str, ...]:
        """Make or complete the collection, and let the alias name it."""
        generation = ensure_generation(self.services, self.workspace)
        mended = {Remedy.MEND_COLLECTION}
        if generation.serving and follow_alias(self.services, generation) is None:
            mended.add(Remedy.MOVE_ALIAS)
        return tuple(finding.detail for finding in findings if finding.remedy in mended)

    def _mend(self, scan: Scan, findings: Sequence[Finding]) -> None:
        """Mend one page, while no other writer has the workspace."""
        cards = [finding.card_id for finding in findings if finding.remedy is Remedy.QUEUE and finding.card_id]
        points = [_point(finding) for finding in findings if finding.remedy is Remedy.DELETE_POINT]
        if not (cards or points):
            return
        with self._turn():
            if not self._still_writes_to(scan):
                self.doubtful += len(cards) + len(points)
                return
            self._queue(scan, cards)
            self._delete(scan, points)

    def _queue(self, scan: Scan, ids: Sequence[str]) -> None:
        """Let cards be written whole: the registry believes nothing of their points any more.

        A point that is ahead of its card would fence off every write, so it goes first.
        """
        collection, number = scan.written
        with self._transaction() as tx:
            current = {card.id: card.revision for card in drift.current(tx, self.workspace, ids)}
            generations.forget_acknowledged(tx, self.workspace, number, list(current))
            self.queued += propagations.enqueue(tx, self.workspace, current)
        revisions = {point_id(card): revision for card, revision in current.items()}
        points = self.services.index.read(collection, list(revisions))
        self._remove(collection, [point for point, state in points.items() if state.revision > revisions[point]])

    def _delete(self, scan: Scan, ids: Sequence[PointId]) -> None:
        """Delete points that are still nobody's."""
        collection, number = scan.written
        points = list(self.services.index.read(collection, ids).values())
        with self._transaction() as tx:
            owners = drift.owners(tx, self.workspace, [point.ref for point in points])
        wrong = [point for point in points if point_drift(point, owners.get(point.ref))]
        self.doubtful += len(points) - len(wrong)
        self._remove(collection, [point.point_id for point in wrong])
        gone = [point.ref for point in wrong if point.ref in owners and point.point_id == point_id(point.ref)]
        with self._transaction() as tx:
            generations.acknowledge_absence(tx, self.workspace, number, gone)

    def _remove(self, collection: str, ids: Sequence[PointId]) -> None:
        """Delete points; gone is what reads back as gone."""
        if not ids:
            return
        self.services.index.delete(collection, ids)
        left = self.services.index.read(collection, ids)
        self.deleted += len(ids) - len(left)
        self.doubtful += len(left)

    def _still_writes_to(self, scan: Scan) -> bool:
        """Whether the workspace's index is still the one that was compared."""
        with self._transaction() as tx:
            known = generations.serving(tx, self.workspace) or generations.building(tx, self.workspace)
        return known is not None and known.collection == scan.written[0]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Be the only writer of the workspace."""
        with self._transaction() as lock:
            if not await_turn(lock, self.workspace, WAIT_SECONDS):
                raise IndexBusy(self.workspace)
            yield

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via)


def _point(finding: Finding) -> PointId:
    name = str(finding.point_id)
    return int(name) if name.isdecimal() else UUID(name)
