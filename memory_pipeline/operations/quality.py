"""How well a workspace's own recall works: its cards by their own words, and its golden questions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardStatus, MemoryRecord
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import NotMeasured
from memory_pipeline.core.health import Verdict
from memory_pipeline.core.ledger import MAX_QUESTION
from memory_pipeline.core.quality import QualityFigures, held_against
from memory_pipeline.core.text import sha256
from memory_pipeline.operations.evaluate import DEPTH, direct_hits, figures
from memory_pipeline.operations.recall import DEFAULT_LIMIT, SearchRequest, recall
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, golden, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.golden import GoldenRow, MeasuredRow

SAMPLE = 50
"""Cards of a workspace that are asked for by their own words."""


class MissedQuestion(BaseModel):
    """A golden question and where the cards that must answer it stand, 0 for one that was not found."""

    model_config = ConfigDict(frozen=True)

    question: str
    ranks: dict[str, int]


class Quality(BaseModel):
    """One measurement. `lost` are sampled cards that their own words do not find; `gone` expected cards that are no
    longer active, and count for nothing; `missed` golden questions whose cards are not all among the first five."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    figures: QualityFigures
    lost: tuple[str, ...] = ()
    missed: tuple[MissedQuestion, ...] = ()
    gone: tuple[str, ...] = ()


class _Golden(NamedTuple):
    """A golden question that was asked, what was found, best first, and the cards that must answer it."""

    row: GoldenRow
    ranked: Sequence[str]
    relevant: set[str]

    def identity(self) -> tuple[str, str, str, tuple[str, ...]]:
        """What makes it another question."""
        return self.row.question, self.row.database, self.row.schema or "", tuple(sorted(self.relevant))

    def missed(self) -> MissedQuestion:
        """Where its cards stand."""
        ranks = {card: self.ranked.index(card) + 1 if card in self.ranked else 0 for card in sorted(self.relevant)}
        return MissedQuestion(question=self.row.question, ranks=ranks)


class AcceptedQuality(BaseModel):
    """The measurement that later ones are held against from now on."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    measured_at: datetime
    figures: QualityFigures


def measure_quality(services: Services, workspace: str) -> Quality | None:
    """Ask for a sample of the cards and for the golden questions, and keep the figures. None without a card.

    Raises:
        NotIndexed, EmbedderUnavailable, IndexUnavailable, UnknownWorkspace, WorkspaceRetired: as for a search.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        ids, total = golden.sample(tx, workspace, SAMPLE)
        sampled = cards.get_many(tx, workspace, ids)
        questions = golden.listed(tx, workspace)
        expected = cards.get_many(tx, workspace, sorted({card for row in questions for card in row.expected}))
        serving = generations.serving(tx, workspace)
    if not total:
        return None
    live = {card.id for card in expected.values() if card.status is CardStatus.ACTIVE}
    lost = [card.id for card in sampled.values() if not _finds_itself(services, card)]
    asked = [
        _Golden(row, _ask(services, workspace, row), wanted)
        for row in questions
        if (wanted := live & set(row.expected))
    ]
    quality = Quality(
        workspace=workspace,
        figures=_figures(serving.number if serving else 0, total, len(sampled), len(lost), asked),
        lost=tuple(lost),
        missed=tuple(each.missed() for each in asked if not each.relevant <= set(each.ranked[:DEFAULT_LIMIT])),
        gone=tuple(sorted({card for row in questions for card in row.expected} - live)),
    )
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        golden.record(tx, workspace, quality.figures)
    return quality


def check_quality(services: Services, workspace: str) -> Verdict:
    """Hold the last measurement against the one that was accepted, or against the first one of the same questions."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        last = next(iter(golden.newest(tx, workspace)), None)
        accepted = golden.accepted(tx, workspace, last.figures.golden_sha256) if last else None
    if last is None or accepted is None:
        return Verdict(passed=True, told="nothing was measured yet")
    return held_against(last.figures, accepted.figures)


def accept_quality(services: Services, workspace: str) -> AcceptedQuality:
    """Hold later figures against the last measurement, as the reviewer.

    Raises:
        NotMeasured: there is none yet.
        UnknownWorkspace, WorkspaceRetired.
    """
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        for last in golden.newest(tx, workspace):
            golden.accept(tx, workspace, last.figure_id)
            return AcceptedQuality(workspace=workspace, measured_at=last.measured_at, figures=last.figures)
    raise NotMeasured(workspace)


def quality_history(services: Services, workspace: str, limit: int) -> list[MeasuredRow]:
    """The last measurements, newest first."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        return golden.newest(tx, workspace, limit=limit)


def _finds_itself(services: Services, card: MemoryRecord) -> bool:
    """Whether a card's own statement finds it, among the memories of its database.

    As the index ranks them: a card whose place a newer one takes is found all the same.
    """
    statement = f"{card.subject}: {card.detail}"[:MAX_QUESTION]
    place = Dependency(database=card.dependencies[0].database) if card.dependencies else None
    request = SearchRequest(workspace=card.workspace, question=statement, place=place, limit=DEFAULT_LIMIT, depth=0)
    return any(proposal.card.id == card.id for proposal in recall(services, request).proposals)


def _ask(services: Services, workspace: str, row: GoldenRow) -> Sequence[str]:
    place = Dependency(database=row.database, schema_=row.schema)
    request = SearchRequest(workspace=workspace, question=row.question, place=place, limit=DEPTH)
    return direct_hits(recall(services, request))


def _figures(generation: int, total: int, sampled: int, lost: int, asked: Sequence[_Golden]) -> QualityFigures:
    found = figures([(each.ranked, each.relevant) for each in asked])
    return QualityFigures(
        generation=generation,
        cards=total,
        sampled=sampled,
        self_recall=1 - lost / sampled,
        golden=len(asked),
        golden_sha256=_digest(asked),
        ndcg_at_10=found.ndcg_at_10,
        recall_at_1=found.recall_at_1,
        recall_at_5=found.recall_at_5,
        mrr=found.mrr,
    )


def _digest(asked: Sequence[_Golden]) -> str:
    """Which questions were asked, and for which cards: figures of others are no measure for these."""
    return sha256(repr(sorted(each.identity() for each in asked)))
