"""Building a workspace's index anew beside the one that serves, and switching to it once it holds everything.

The new collection is filled from the registry and its stored vectors. What changes meanwhile goes to the old one by
ordinary drains and is found here by comparing revisions. The commit in PostgreSQL is the switch: a search sees the old
index or the new one, whole. Killed anywhere, the old one still serves and the next call goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.epoch import is_behind
from memory_pipeline.core.errors import (
    EmbedderUnavailable,
    IndexBusy,
    IndexUnavailable,
    ModelMissing,
    RebuildIncomplete,
)
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import IndexFormat, point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import analyser_of
from memory_pipeline.failpoints import reach
from memory_pipeline.index.points import PointId, PointState
from memory_pipeline.logs import operation
from memory_pipeline.operations.embed import FailedCard, Progress
from memory_pipeline.operations.generation import (
    desired_format,
    differences,
    follow_alias,
    insert_generation,
    longest_search,
    make_collection,
)
from memory_pipeline.operations.points import BATCH, WINDOW, Batch, EmbeddingAhead, Written
from memory_pipeline.operations.propagate import DrainReport, Problem, await_turn, drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import sweep
from memory_pipeline.store import cards, generations, propagations, upkeep, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation, ProjectionState

WAIT_SECONDS = 60.0
_PAGE = 1000
_MOST_PASSES = 10
_MOST_MENDINGS = 3
_NAMED = 20


class RebuildReport(BaseModel):
    """What a rebuild did, in cards.

    `resumed`: it went on with what an earlier one had left. `replayed`: changed while it was filled. `replaced`: the
    collection that served before; it is dropped by a later drain. `drain`: what followed the switch. `problem`: the
    alias did not follow yet, which only other readers see.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    collection: str
    generation: int
    replaced: str | None
    resumed: bool
    cards: int
    written: int
    embedded: int
    replayed: int
    mended: int
    failed: tuple[FailedCard, ...] = ()
    dropped: tuple[str, ...] = ()
    drain: DrainReport
    problem: Problem | None = None


@operation("rebuild", lambda report: {"collection": report.collection, "replaced": report.replaced})
def rebuild(services: Services, workspace: str, progress: Progress = lambda _: None) -> RebuildReport:
    """Build a new index as the settings want it, and let searches use it.

    Raises:
        IndexBusy: another rebuild runs, or a drain kept its turn for too long.
        RebuildIncomplete: the new index would lose a card that is found today, or does not hold what was written.
        EmbedderUnavailable, IndexUnavailable: a server broke off; the next call goes on from there.
        UnknownWorkspace, WorkspaceRetired.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as lock:
        if not propagations.try_lock_rebuild(lock, workspace):
            raise IndexBusy(workspace)
        dropped = sweep(services, workspace)
        builder = _open(services, workspace, progress)
        builder.fill()
        builder.verify()
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as turn:
            if not await_turn(turn, workspace, WAIT_SECONDS):
                raise IndexBusy(workspace)
            builder.replay()
            workspaces.get_active(turn, workspace)  # it may have been retired meanwhile
            for held in (lock, turn):
                propagations.require_lock(held)
            builder.switch()
        problem = builder.follow_alias()
    drained = drain(services, workspace, wait=WAIT_SECONDS)
    return builder.report(dropped, drained, problem)


def _open(services: Services, workspace: str, progress: Progress) -> _Builder:
    """Go on with a rebuild that was left, where it still is what is wanted; else begin one."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = workspaces.get_active(tx, workspace)
        serving = generations.serving(tx, workspace)
        left = generations.rebuilding(tx, workspace)
    wanted = _wanted_format(services, known, serving)
    if serving is not None:
        _part_from(services, workspace, serving)
    generation = left if left is not None and _can_go_on(services, workspace, left, wanted) else None
    resumed = generation is not None
    if generation is None:
        generation = insert_generation(services, known, wanted, is_rebuild=True)
    reach("rebuild:recorded")
    shape = services.index.shape(generation.collection)
    if shape is None or shape.lacks_lexical_alone(generation.format.dimensions):
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            generations.forget_points(tx, workspace, generation.number)
    make_collection(services, generation, shape)
    reach("rebuild:created")
    return _Builder(services, workspace, generation, serving, resumed, progress)


def _part_from(services: Services, workspace: str, serving: Generation) -> None:
    """Let an index that is ahead of a restored registry stay so, however far this rebuild raises the counter."""
    shape = services.index.shape(serving.collection)
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        registry = upkeep.epoch(tx, workspace)
        held = shape.epoch if shape else None
        if registry and held and held.lineage == registry.lineage and is_behind(registry, held):
            upkeep.renew_lineage(tx, workspace)


def _can_go_on(services: Services, workspace: str, left: Generation, wanted: IndexFormat) -> bool:
    """Whether what an earlier rebuild left can be finished; what cannot is given up, and dropped by the next sweep."""
    reasons = list(differences(left.format, wanted))
    shape = services.index.shape(left.collection)
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        if shape is not None:
            if is_behind(upkeep.epoch(tx, workspace), shape.epoch):
                reasons.append("the registry was restored from a backup")
            if not shape.lacks_lexical_alone(left.format.dimensions):
                reasons += shape.differences(left.format.dimensions)
        if reasons:
            generations.give_up(tx, workspace, left.number, "; ".join(reasons))
    return not reasons


def _wanted_format(services: Services, workspace: Workspace, serving: Generation | None) -> IndexFormat:
    """What is to be built. An embedder that is down is not needed where nothing that can be told has changed."""
    try:
        return desired_format(services, workspace)
    except ModelMissing:
        raise
    except EmbedderUnavailable:
        profile = profile_named(workspace.embedding_profile)
        told = {
            "profile": profile.name,
            "profile_version": profile.version,
            "language": workspace.language,
            "analyser": analyser_of(workspace.language, profile),
        }
        asked = services.settings.embedding_model
        if serving is None or serving.format.model not in (asked, f"{asked}:latest"):
            raise
        if serving.format.model_copy(update=told) != serving.format:
            raise
        return serving.format


@dataclass
class _Filled(Batch):
    """Cards on their way into a collection that nobody searches yet: one that fails is kept in mind."""

    failures: dict[str, FailedCard]

    def settle(self, tx: Transaction, ids: Collection[str]) -> None:
        """The outbox is the serving index's; here a card that failed before has come through."""
        for card in ids:
            self.failures.pop(card, None)

    def postpone(self, failed: Sequence[FailedCard], *, outage: bool) -> None:
        """Nothing waits here: an outage ends the rebuild, and its failures with it."""
        if not outage:
            self.failures.update({card.card_id: card for card in failed})


@dataclass
class _Builder:
    """One rebuild on its way, from an empty or half-filled collection to the one that serves."""

    services: Services
    workspace: str
    generation: Generation
    serving: Generation | None
    resumed: bool
    progress: Progress
    written: Written = field(default_factory=Written)
    failures: dict[str, FailedCard] = field(default_factory=dict)
    replayed: int = 0
    mended: int = 0
    points: int = 0

    def fill(self) -> None:
        """Write what is not there yet, until little has changed since: what changed then is left to the replay."""
        self._pass()
        for _ in range(_MOST_PASSES):
            changed = self._pass()
            self.replayed += changed
            if changed <= BATCH:
                break
        reach("rebuild:filled")

    def verify(self) -> None:
        """Compare every point with what was acknowledged; write again what is missing or differs, remove what is more.

        Raises:
            RebuildIncomplete: the collection does not come to hold what was written.
        """
        for _ in range(_MOST_MENDINGS):
            wrong = self._compare()
            if not wrong:
                reach("rebuild:verified")
                return
            self.mended += wrong
            self._pass()
        with self._transaction() as tx:
            generations.give_up(tx, self.workspace, self.generation.number, "it did not come to hold what was written")
        raise RebuildIncomplete(self.workspace, f"{wrong} points differ each time that they are read")

    def replay(self) -> None:
        """Bring in what changed since, while nobody else writes.

        Raises:
            RebuildIncomplete: a card that is found today would be lost, or the points are not as many as they must be.
        """
        for _ in range(_MOST_MENDINGS):  # a change that commits from now on waits in the outbox for the new index
            changed = self._pass()
            self.replayed += changed
            if not changed:
                break
        if lost := self._lost():
            named = "; ".join(f"{card}: {self.failures[card].error}: {self.failures[card].message}" for card in lost)
            raise RebuildIncomplete(self.workspace, f"it would lose {len(lost)} or more cards, {named}")
        self.points = self.services.index.count(self.generation.collection)
        with self._transaction() as tx:
            expected = generations.acknowledged_count(tx, self.workspace, self.generation.number)
        if self.points != expected:
            raise RebuildIncomplete(self.workspace, f"{self.points} points are there, and {expected} were seen before")
        reach("rebuild:replayed")

    def switch(self) -> None:
        """Let searches use it. What waited for cards that it holds is done; what failed goes on waiting."""
        number = self.generation.number
        if self.serving is None:  # nothing is left to drop then, and it is the drop that sees to a forgotten alias
            follow_alias(self.services, self.generation)
        with self._transaction() as tx:
            generations.start_serving(tx, self.workspace, number, keep=longest_search(self.services))
            propagations.settle_followed(tx, self.workspace, number)
            revisions = {card.id: card.revision for card in self._cards(tx, self.failures).values()}
            propagations.enqueue(tx, self.workspace, revisions)
        reach("rebuild:switched")

    def follow_alias(self) -> Problem | None:
        """Let the alias follow. Searches do without it, so a failure is only told; the next sweep repeats it."""
        try:
            refused = follow_alias(self.services, self.generation)
        except IndexUnavailable as error:
            return Problem.of(error)
        reach("rebuild:aliased")
        return Problem.of(refused) if refused else None

    def report(self, dropped: tuple[str, ...], drained: DrainReport, problem: Problem | None) -> RebuildReport:
        """Tell what was done."""
        return RebuildReport(
            workspace=self.workspace,
            collection=self.generation.collection,
            generation=self.generation.number,
            replaced=self.serving.collection if self.serving else None,
            resumed=self.resumed,
            cards=self.points,
            written=self.written.upserted + self.written.payload_only,
            embedded=self.written.embedded,
            replayed=self.replayed,
            mended=self.mended,
            failed=tuple(self.failures.values()),
            dropped=dropped,
            drain=drained,
            problem=problem,
        )

    def _pass(self) -> int:
        """Write every card that the new index does not follow, once; returns how many. Failed ones are tried again."""
        total, after = 0, 0
        writer = _Filled(self.services, self.workspace, self.generation, self.written, self.failures)
        with EmbeddingAhead(self.services, self.workspace, self.generation) as ahead:
            while True:
                with self._transaction() as tx:
                    left = generations.behind(tx, self.workspace, self.generation.number, after=after, limit=WINDOW)
                if not left:
                    self.written.embedded += ahead.finish()
                    return total
                numbers, ids = zip(*left, strict=True)
                page, following, after = ids[:BATCH], ids[BATCH:], numbers[:BATCH][-1]
                fresh = [card for card in page if card not in self.failures]
                self.written.embedded += ahead.finish(page)
                writer.write(page, partial(ahead.begin, following))
                total += len(fresh)
                self.progress(len(fresh))

    def _compare(self) -> int:
        """Forget every acknowledgement that the collection does not bear out; returns how many points were wrong."""
        held = extra = 0
        for page in self.services.index.scroll(self.generation.collection, _PAGE):
            with self._transaction() as tx:
                states = generations.states(tx, self.workspace, self.generation.number, [point.ref for point in page])
                sound = [point for point in page if _is_acknowledged(point, states.get(point.ref))]
                strange = [point for point in page if not _is_acknowledged(point, states.get(point.ref))]
                generations.forget_acknowledged(
                    tx, self.workspace, self.generation.number, [point.ref for point in strange]
                )
            held += len(sound)
            extra += len(strange)
            if strange:
                self._remove([point.point_id for point in strange])
        with self._transaction() as tx:
            acknowledged = generations.acknowledged_count(tx, self.workspace, self.generation.number)
        return extra + (self._forget_missing() if acknowledged != held else 0)

    def _remove(self, ids: Sequence[PointId]) -> None:
        """A point that is not as it was acknowledged is written anew by the next pass, or belongs to no card."""
        self.services.index.delete(self.generation.collection, ids)

    def _forget_missing(self) -> int:
        """Forget acknowledged points that are not there."""
        missing, after = 0, ""
        while True:
            with self._transaction() as tx:
                page = generations.acknowledged_page(
                    tx, self.workspace, self.generation.number, after=after, limit=_PAGE
                )
            if not page:
                return missing
            after = max(page)
            there = self.services.index.read(self.generation.collection, [point_id(card) for card in page])
            gone = [card for card in page if point_id(card) not in there]
            with self._transaction() as tx:
                generations.forget_acknowledged(tx, self.workspace, self.generation.number, gone)
            missing += len(gone)

    def _lost(self) -> list[str]:
        """Cards that failed here and are found in the index that serves; some of them, if there are many."""
        if self.serving is None or not self.failures:
            return []
        with self._transaction() as tx:
            current = self._cards(tx, self.failures)
            states = generations.states(tx, self.workspace, self.serving.number, list(current))
        return [
            card
            for card, state in states.items()
            if state.revision == current[card].revision
            and state.expected_sha256 is not None
            and state.acknowledged_sha256 == state.expected_sha256
        ][:_NAMED]

    def _cards(self, tx: Transaction, ids: Collection[str]) -> dict[str, MemoryRecord]:
        return cards.get_many(tx, self.workspace, list(ids))

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via)


def _is_acknowledged(point: PointState, state: ProjectionState | None) -> bool:
    """Whether a point is the one of the card that it names, and holds what it was seen to hold."""
    return (
        state is not None
        and state.acknowledged_sha256 is not None
        and point.point_id == point_id(point.ref)
        and (point.revision, point.projection_sha256) == (state.revision, state.acknowledged_sha256)
    )
