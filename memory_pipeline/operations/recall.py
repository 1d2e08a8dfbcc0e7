"""Finding memories for a question (F2).

A hit of the index is only a pointer: what is returned is the current row of the registry, checked again. Links of the
hits bring further cards, each checked as a hit is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.candidates import cited_cards
from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.context import SearchContext, SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadInput,
    BadQuestion,
    CollectionMissing,
    EmbedderUnavailable,
    NotIndexed,
    ServersUnknown,
)
from memory_pipeline.core.ledger import MAX_QUESTION, EntryType, require_session_id
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.ranking import Path, choose, joint_scores, newest, told
from memory_pipeline.core.references import cards_of
from memory_pipeline.core.text import require_storable
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import BranchScores, IndexHit
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.logs import operation
from memory_pipeline.operations.hits import Drop, Gathered, gather
from memory_pipeline.operations.links import DEFAULT_DEPTH, MAX_DEPTH, Gap, Limit, Web, follow_links
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation
from memory_pipeline.store.recall import Reading, read

MAX_LIMIT = 100
DEFAULT_LIMIT = 5


class OnEmbedderDown(StrEnum):
    """What a search does without its embedder."""

    FAIL = "fail"
    LEXICAL = "lexical"


class SearchRequest(BaseModel):
    """A question and what its asker may see.

    `limit` bounds the direct hits; what they require comes along beyond it. `depth` bounds the links followed in a row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str
    question: str
    session: str | None = None
    place: Dependency | None = None
    filters: SearchFilters = SearchFilters()
    limit: int = DEFAULT_LIMIT
    depth: int = DEFAULT_DEPTH
    on_embedder_down: OnEmbedderDown = OnEmbedderDown.FAIL


class Scores(BaseModel):
    """Cosine of the dense branch, BM25 score of the lexical one, and what they were fused to.

    Without an embedder there is no cosine. Under RRF and DBSF a card that only a link brought has no fused score: there
    it depends on the other hits.
    """

    model_config = ConfigDict(frozen=True)

    dense: float | None
    bm25: float
    fused: float | None


class Proposal(BaseModel):
    """One memory proposed: the current card, why it came, and where its knowledge is from.

    `score` is what it was ranked by: its fused score, or what links to it bring, whichever is higher. `reached_by` is
    `search`, or the links that led to it. `incomplete` names what it requires and the answer cannot give.
    """

    model_config = ConfigDict(frozen=True)

    rank: int
    card: MemoryRecord
    score: float
    scores: Scores
    reached_by: str = "search"
    incomplete: tuple[Gap, ...] = ()
    sources: tuple[str, ...]


class Timings(BaseModel):
    """Milliseconds of one search, by stage. `total` has what lies between them too.

    `embed`: the question, for both branches. `index`: the hits and their branch scores. `registry`: the generation, the
    session, the rows of the hits. `links`: the rows to which links lead.
    """

    model_config = ConfigDict(frozen=True)

    embed: float
    index: float
    registry: float
    links: float
    total: float


class Recall(BaseModel):
    """The answer to a search.

    `excluded` counts what was found and left out, by reason; `decided` are the cards that the session settled before;
    `limits` are the bounds that kept the search from looking further.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    question: str
    generation: int
    proposals: tuple[Proposal, ...]
    excluded: dict[str, int]
    decided: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    degraded: str | None = None
    timings: Timings


@operation(
    "search", lambda answer: {"found": len(answer.proposals), "excluded": answer.excluded, "degraded": answer.degraded}
)
def recall(services: Services, request: SearchRequest) -> Recall:
    """Search a workspace's memories.

    Raises:
        BadQuestion: empty, or longer than `MAX_QUESTION` characters.
        NotIndexed: the workspace has no serving index.
        EmbedderUnavailable: and the request does not accept a lexical answer.
        IndexUnavailable: Qdrant cannot answer.
        CollectionMissing: the collection of the serving generation is lost.
        UnknownWorkspace, WorkspaceRetired.
    """
    question = _require_question(request.question)
    if not 1 <= request.limit <= MAX_LIMIT:
        raise BadInput(f"a limit of {request.limit} cannot be served", hint=f"ask for 1 to {MAX_LIMIT}")
    if not 0 <= request.depth <= MAX_DEPTH:
        raise BadInput(f"links cannot be followed to a depth of {request.depth}", hint=f"ask for 0 to {MAX_DEPTH}")
    clock = _Clock()
    try:
        return _Search.prepare(services, request, question, clock).run()
    except CollectionMissing:  # switched between our reading of the generation and the search
        return _Search.prepare(services, request, question, clock).run()


class _Clock:
    """Adds up the time spent in each stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent = dict.fromkeys(Timings.model_fields.keys() - {"total"}, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens within."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._spent[name] += time.perf_counter() - started

    def read(self) -> Timings:
        """The times so far."""
        spent = {**self._spent, "total": time.perf_counter() - self._started}
        return Timings(**{name: round(1000 * seconds, 3) for name, seconds in spent.items()})


@dataclass(frozen=True)
class _Search:
    """One search against one generation."""

    services: Services
    request: SearchRequest
    context: SearchContext
    question: str
    generation: Generation
    decided: tuple[str, ...]
    query: HybridQuery
    degraded: str | None
    clock: _Clock

    @classmethod
    def prepare(cls, services: Services, request: SearchRequest, question: str, clock: _Clock) -> _Search:
        """Read the serving generation and what the session decided, and encode the question for both branches."""
        with (
            clock.stage("registry"),
            services.database.transaction(Role.READER, request.workspace, via=services.via) as tx,
        ):
            workspace = workspaces.get_active(tx, request.workspace)
            generation = generations.serving(tx, request.workspace)
            decided = _decided_cards(tx, request.workspace, request.session)
        context = search_context(request.place, request.filters, default_schema=workspace.default_schema)
        if generation is None:
            raise NotIndexed(request.workspace)
        with clock.stage("embed"):
            query, degraded = _encode(services, request, question, generation)
        query = replace(query, filter=SearchFilter.of(context, without=decided))
        return cls(services, request, context, question, generation, decided, query, degraded, clock)

    def run(self) -> Recall:
        """Find hits that stand, follow their links, and rank both together."""
        found = gather(self._fetch, self._read, self.context, limit=self.request.limit)
        with self._reading("links") as rows:
            web = follow_links(
                found.kept,
                rows,
                self.context,
                limit=self.request.limit,
                distrusted=found.refused,
                decided=frozenset(self.decided),
                depth=self.request.depth,
            )
        kept = choose(list(found.kept), web.edges, web.readings.keys() - set(self.decided), limit=self.request.limit)
        proposals = self._propose(found, web, kept)
        return Recall(
            workspace=self.request.workspace,
            question=self.question,
            generation=self.generation.number,
            proposals=proposals,
            excluded=_excluded(found, web, kept),
            decided=self.decided,
            limits=tuple(limit for limit in Limit if limit in web.limits or (limit is Limit.ROUNDS and found.short)),
            degraded=self.degraded,
            timings=self.clock.read(),
        )

    def _fetch(self, size: int) -> list[IndexHit]:
        with self.clock.stage("index"):
            return self.services.index.search(self.generation.collection, replace(self.query, limit=size))

    def _read(self, ids: Sequence[str]) -> dict[str, Reading]:
        with self._reading("registry") as rows:  # of its own each time: nothing is held while the index answers
            return rows(ids)

    @contextmanager
    def _reading(self, stage: str) -> Iterator[Callable[[Sequence[str]], dict[str, Reading]]]:
        """Reads cards in one transaction, which begins with the first of them: most searches follow no link."""
        with ExitStack() as opened:
            found: list[Transaction] = []

            def rows(ids: Sequence[str]) -> dict[str, Reading]:
                with self.clock.stage(stage):
                    if not found:
                        found.append(opened.enter_context(self._transaction()))
                    return read(found[0], self.request.workspace, self.generation.number, ids)

            yield rows

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self.services.database.transaction(Role.READER, self.request.workspace, via=self.services.via)

    def _propose(self, found: Gathered, web: Web, kept: Mapping[str, Path]) -> tuple[Proposal, ...]:
        """Rank what is kept, with the exact branch scores of each: one request, whatever brought them."""
        if not kept:
            return ()
        with self.clock.stage("index"):
            points = {card: point_id(card) for card in kept}
            branches = self.services.index.branch_scores(self.generation.collection, list(points.values()), self.query)
        scores = {card: self._scores(found, card, branches[point]) for card, point in points.items()}
        own = {card: hit.score for card, hit in found.kept.items()}
        own |= {card: score.fused for card, score in scores.items() if score.fused is not None}
        joint = joint_scores(own, web.edges, kept)
        had = kept.keys() | set(self.decided)
        ranked = sorted(kept, key=lambda card: (-joint[card], -self.context.specificity(web.card(card)), card))
        return tuple(
            Proposal(
                rank=rank,
                card=web.card(card),
                score=joint[card],
                scores=scores[card],
                reached_by=told(kept[card]),
                incomplete=web.gaps(web.card(card), had),
                sources=web.readings[card].sources,
            )
            for rank, card in enumerate(ranked, start=1)
        )

    def _scores(self, found: Gathered, card: str, branches: BranchScores) -> Scores:
        hit = found.kept.get(card)
        return Scores(
            dense=None if self.query.dense is None else branches.dense,
            bm25=branches.bm25,
            fused=hit.score if hit else self.query.fused(branches),
        )


def _encode(
    services: Services, request: SearchRequest, question: str, generation: Generation
) -> tuple[HybridQuery, str | None]:
    """The question for both branches, under the serving generation's format; and why one of them is missing."""
    index, profile = generation.format, profile_named(generation.format.profile)
    dense, degraded = None, None
    try:
        dense = services.embedder.embed_query(index.model, profile.dense_query(question), dimensions=index.dimensions)
    except (EmbedderUnavailable, ServersUnknown) as error:
        if request.on_embedder_down is OnEmbedderDown.FAIL:
            raise
        degraded = f"lexical only: {error.message}"
    query = HybridQuery(
        dense=dense,
        lexical=encoder_of(index.language, profile).query(profile.lexical_query(question)),
        filter=SearchFilter(),
        limit=request.limit,
        prefetch=profile.prefetch,
        lexical_weight=profile.lexical_weight,
        lexical_half=profile.lexical_half,
        method=services.settings.fusion,
    )
    return query, degraded


def _excluded(found: Gathered, web: Web, kept: Mapping[str, Path]) -> dict[str, int]:
    """What was found and left out, by reason. A superseded hit counts where it gave its place away."""
    counts = found.counts
    if superseded := sum(card not in kept and newest(card, web.edges) != (card,) for card in found.kept):
        counts[Drop.SUPERSEDED] = superseded
    return {reason.value: count for reason, count in sorted(counts.items())}


def _require_question(question: str) -> str:
    text = require_storable(question, "the question").strip()
    if not text:
        raise BadQuestion("the question is empty", hint="ask one")
    if len(text) > MAX_QUESTION:
        raise BadQuestion(
            f"the question has {len(text)} characters; {MAX_QUESTION} are allowed", hint="ask a shorter one"
        )
    return text


def _decided_cards(tx: Transaction, workspace: str, session_id: str | None) -> tuple[str, ...]:
    """Cards that the session settled: cited by an effective concept, or rejected effectively."""
    if session_id is None:
        return ()
    require_session_id(session_id)
    found: dict[str, None] = {}
    for entry in ledger.effective_decisions(tx, workspace, session_id):
        match entry.type:
            case EntryType.CONCEPT_CLARIFIED:
                found.update(dict.fromkeys(cited_cards(entry)))
            case EntryType.MEMORY_REJECTED:
                texts = (entry.subject or "", entry.detail, *entry.memories)
                found.update(dict.fromkeys(card for text in texts for card in cards_of(text)))
    return tuple(found)
