"""Evaluation: how well recall finds the right cards, on corpora of cards and questions.

Every set goes into a scratch workspace of its own, through curation and propagation as anybody's cards do, and every
question through the ordinary search. What was made is purged in the end. Two protocols: `filtered` asks in the database
of the question, `global` in no place at all. Where a corpus says which question created a card, cards come to exist
between the questions, in that order, and a question is asked only where a card exists that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.metrics import mean, ndcg_at, percentile, recall_at, reciprocal_rank
from memory_pipeline.operations.branches import search_branches
from memory_pipeline.operations.corpora import Corpus, CorpusQuery, load_corpora
from memory_pipeline.operations.recall import DEFAULT_LIMIT, Recall, SearchRequest, recall
from memory_pipeline.operations.scratch import purge_leftovers, require_secrets, scratch_workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.shelf import Shelf, is_born

VIA = "evaluation"
"""The actor that is kept with everything that an evaluation writes."""

FILTERED, GLOBAL = "filtered", "global"

DEPTH = 10
"""Hits that are looked at."""

Progress = Callable[[str, int, int], None]
"""Told a set, how many of its questions are done, and how many there are."""


class Figures(BaseModel):
    """Means over the questions of a set. Each looks at the first ten hits at most; none where nothing was asked."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)

    ndcg_at_10: float | None = Field(alias="ndcg@10")
    recall_at_1: float | None = Field(alias="r@1")
    recall_at_5: float | None = Field(alias="r@5")
    mrr: float | None


class Latency(BaseModel):
    """Milliseconds within which half, and 95 of 100, of the searches were done."""

    model_config = ConfigDict(frozen=True)

    p50: float
    p95: float


class SetFigures(BaseModel):
    """One set under one protocol, its questions of one language.

    `closure_recall`: the share of all that a question's cards depend on, themselves included, in what a search of the
    default limit returns with links followed; over questions with more than one such card, none where there are none.
    A set of which no question was asked has one row, without figures.
    `scope_leaks` counts answers whose card holds in other databases only.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    protocol: str
    language: str
    queries: int
    fused: Figures
    dense: Figures
    bm25: Figures
    closure_recall: float | None
    scope_leaks: int
    latency_ms: dict[str, Latency]


class Evaluation(BaseModel):
    """The figures of every set that was asked."""

    model_config = ConfigDict(frozen=True)

    sets: tuple[SetFigures, ...]


def evaluate(
    services: Services,
    path: Path,
    *,
    names: tuple[str, ...] = (),
    language: str | None = None,
    progress: Progress = lambda *_: None,
) -> Evaluation:
    """Measure recall on the corpora of a folder.

    Args:
        names: only these sets.
        language: only questions in this language.

    Raises:
        BadCorpus: a set cannot be used; nothing was made.
        MissingSecret: that of a role which is needed; nothing was made.
        EvaluationStopped: cards of a set do not reach the index.
        EmbedderUnavailable, IndexUnavailable, StoreUnavailable: a server does not answer.
    """
    require_secrets(services)
    corpora = load_corpora(path, names)
    with replace(services, via=VIA) as own:
        purge_leftovers(own)
        return Evaluation(sets=tuple(row for corpus in corpora for row in _measure(own, corpus, language, progress)))


class _Question(NamedTuple):
    """A question that is asked, with those of its cards that exist by then."""

    query: CorpusQuery
    language: str
    relevant: tuple[str, ...]


class _Asked(NamedTuple):
    """What came of a question under one protocol. Ids are those of the workspace's cards."""

    relevant: Collection[str]
    fused: Sequence[str]
    dense: Sequence[str]
    bm25: Sequence[str]
    closure: float | None
    leaks: int
    milliseconds: dict[str, float]


def _measure(services: Services, corpus: Corpus, language: str | None, progress: Progress) -> Iterator[SetFigures]:
    """Ask every question of a set, and sum up by language and protocol."""
    questions = list(_questions(corpus, language))
    if not questions:
        progress(corpus.name, 0, 0)
        yield _summed(corpus.name, language or corpus.language, GLOBAL, [])
        return
    asked: dict[tuple[str, str], list[_Asked]] = {}
    with scratch_workspace(
        services, title=f"Evaluation of {corpus.name}", language=corpus.language, database=corpus.database()
    ) as workspace:
        shelf = Shelf(services, workspace.slug, corpus)
        for done, question in enumerate(questions):
            progress(corpus.name, done, len(questions))
            shelf.stock(before=question.query.order)
            for protocol, answer in _ask(shelf, question):
                asked.setdefault((question.language, protocol), []).append(answer)
        progress(corpus.name, len(questions), len(questions))
    yield from (_summed(corpus.name, *key, asked[key]) for key in sorted(asked))


def _questions(corpus: Corpus, language: str | None) -> Iterator[_Question]:
    """The questions to ask, in the order in which their cards come to exist."""
    born = {card.id: card.order for card in corpus.cards}
    for query in sorted(corpus.queries, key=lambda query: query.order or 0):
        spoken = query.language or corpus.language
        exist = tuple(card for card in query.relevant if card in born and is_born(born[card], query.order))
        if exist and language in (None, spoken):
            yield _Question(query, spoken, exist)


def _places(query: CorpusQuery) -> dict[str, Dependency | None]:
    """Where a question is asked, by protocol."""
    return {FILTERED: query.place, GLOBAL: None} if query.place else {GLOBAL: None}


def _ask(shelf: Shelf, question: _Question) -> Iterator[tuple[str, _Asked]]:
    """Ask a question under each protocol: of recall, and of each branch by itself."""
    query, relevant = question.query, {shelf.ids[card] for card in question.relevant}
    closure = {shelf.ids[card] for card in query.closure if card in shelf.ids}
    places = _places(query)
    alone = search_branches(shelf.services, shelf.workspace, query.question, list(places.values()), limit=DEPTH)
    for (protocol, place), branches in zip(places.items(), alone, strict=True):
        answer = _recall(shelf, query, place, DEPTH)
        yield (
            protocol,
            _Asked(
                relevant=relevant,
                fused=direct_hits(answer),
                dense=branches["dense"],
                bm25=branches["bm25"],
                closure=_brought(shelf, query, place, closure) if len(closure) > 1 else None,
                leaks=sum(leaks(proposal.card, place) for proposal in answer.proposals),
                milliseconds=answer.timings.model_dump(),
            ),
        )


def _recall(shelf: Shelf, query: CorpusQuery, place: Dependency | None, limit: int) -> Recall:
    request = SearchRequest(workspace=shelf.workspace, question=query.question, place=place, limit=limit)
    return recall(shelf.services, request)


def _brought(shelf: Shelf, query: CorpusQuery, place: Dependency | None, closure: Collection[str]) -> float:
    """The share of a question's closure that a search of the default limit brings, links included."""
    brought = [proposal.card.id for proposal in _recall(shelf, query, place, DEFAULT_LIMIT).proposals]
    return recall_at(len(brought), brought, closure)


def leaks(card: MemoryRecord, place: Dependency | None) -> bool:
    """Whether a card is none of this place's: it has dependencies, and each is in another database."""
    if place is None or not card.dependencies:
        return False
    database = Dependency(database=place.database).path()
    return all(Dependency(database=own.database).path() != database for own in card.dependencies)


def _summed(name: str, language: str, protocol: str, asked: Sequence[_Asked]) -> SetFigures:
    closures = [each.closure for each in asked if each.closure is not None]
    return SetFigures(
        name=name,
        protocol=protocol,
        language=language,
        queries=len(asked),
        fused=figures([(each.fused, each.relevant) for each in asked]),
        dense=figures([(each.dense, each.relevant) for each in asked]),
        bm25=figures([(each.bm25, each.relevant) for each in asked]),
        closure_recall=_rounded(mean(closures)),
        scope_leaks=sum(each.leaks for each in asked),
        latency_ms=_latencies([each.milliseconds for each in asked]),
    )


def direct_hits(answer: Recall) -> list[str]:
    """Ids of the cards that a search itself found, best first: what came by a link answers nothing by its rank."""
    return [proposal.card.id for proposal in answer.proposals if proposal.reached_by == "search"]


def figures(rankings: Sequence[tuple[Sequence[str], Collection[str]]]) -> Figures:
    """The means over rankings, each with the ids that were relevant."""
    return Figures(
        ndcg_at_10=_rounded(mean(ndcg_at(10, ranked, relevant) for ranked, relevant in rankings)),
        recall_at_1=_rounded(mean(recall_at(1, ranked, relevant) for ranked, relevant in rankings)),
        recall_at_5=_rounded(mean(recall_at(5, ranked, relevant) for ranked, relevant in rankings)),
        mrr=_rounded(mean(reciprocal_rank(ranked[:DEPTH], relevant) for ranked, relevant in rankings)),
    )


def _latencies(searches: Sequence[dict[str, float]]) -> dict[str, Latency]:
    found = {}
    for stage in dict.fromkeys(stage for search in searches for stage in search):
        spent = [search[stage] for search in searches if stage in search]
        half, most = percentile(spent, 0.5) or 0.0, percentile(spent, 0.95) or 0.0
        found[stage] = Latency(p50=round(half, 2), p95=round(most, 2))
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
