"""Finding memories for a question (F2).

A hit of the index is only a pointer: what is returned is the current row of the registry, checked again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.candidates import cited_cards
from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord
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
from memory_pipeline.core.ledger import MAX_QUESTION, REUSABLE_TYPES, EntryType, require_session_id
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.references import cards_of
from memory_pipeline.core.text import require_storable
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import BranchScores, IndexHit
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation, ProjectionState

MAX_LIMIT = 100
DEFAULT_LIMIT = 5
_MOST_ROUNDS = 6


class OnEmbedderDown(StrEnum):
    """What a search does without its embedder."""

    FAIL = "fail"
    LEXICAL = "lexical"


class SearchRequest(BaseModel):
    """A question and what its asker may see."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str
    question: str
    session: str | None = None
    place: Dependency | None = None
    filters: SearchFilters = SearchFilters()
    limit: int = DEFAULT_LIMIT
    on_embedder_down: OnEmbedderDown = OnEmbedderDown.FAIL


class Scores(BaseModel):
    """Cosine of the dense branch, BM25 score of the lexical one, and what they were fused to."""

    model_config = ConfigDict(frozen=True)

    dense: float | None
    bm25: float
    fused: float


class Proposal(BaseModel):
    """One memory proposed: the current card, why it came, and where its knowledge is from."""

    model_config = ConfigDict(frozen=True)

    rank: int
    card: MemoryRecord
    scores: Scores
    reached_by: str = "search"
    sources: tuple[str, ...]


class Recall(BaseModel):
    """The answer to a search.

    `excluded` counts what was found and left out, by reason; `decided` are the cards that the session settled before.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    question: str
    generation: int
    proposals: tuple[Proposal, ...]
    excluded: dict[str, int]
    decided: tuple[str, ...]
    degraded: str | None = None


def recall(services: Services, request: SearchRequest) -> Recall:
    """Search a workspace's memories.

    Raises:
        BadQuestion: empty, or longer than `MAX_QUESTION` characters.
        NotIndexed: the workspace has no serving index.
        EmbedderUnavailable: and the request does not accept a lexical answer.
        IndexUnavailable: Qdrant cannot answer.
        UnknownWorkspace, WorkspaceRetired.
    """
    question = _require_question(request.question)
    if not 1 <= request.limit <= MAX_LIMIT:
        raise BadInput(f"a limit of {request.limit} cannot be served", hint=f"ask for 1 to {MAX_LIMIT}")
    try:
        return _Search.prepare(services, request, question).run()
    except CollectionMissing:  # switched between our reading of the generation and the search
        return _Search.prepare(services, request, question).run()


class Drop(StrEnum):
    """Why a hit of the index was not proposed."""

    MISSING = "missing"
    NOT_ACTIVE = "not_active"
    NOT_CURRENT = "not_current"
    NOT_REUSABLE = "not_reusable"
    OUT_OF_CONTEXT = "out_of_context"


class _Checked(NamedTuple):
    hit: IndexHit
    card: MemoryRecord


class _Search(NamedTuple):
    """One search against one generation."""

    services: Services
    request: SearchRequest
    context: SearchContext
    question: str
    generation: Generation
    decided: tuple[str, ...]
    query: HybridQuery
    degraded: str | None

    @classmethod
    def prepare(cls, services: Services, request: SearchRequest, question: str) -> _Search:
        """Read the serving generation and what the session decided, and encode the question for both branches."""
        with services.database.transaction(Role.READER, request.workspace, via=services.via) as tx:
            workspace = workspaces.get_active(tx, request.workspace)
            generation = generations.serving(tx, request.workspace)
            decided = _decided_cards(tx, request.workspace, request.session)
        context = search_context(request.place, request.filters, default_schema=workspace.default_schema)
        if generation is None:
            raise NotIndexed(request.workspace)
        index, profile = generation.format, profile_named(generation.format.profile)
        dense, degraded = None, None
        try:
            dense = services.embedder.embed_query(
                index.model, profile.dense_query(question), dimensions=index.dimensions
            )
        except (EmbedderUnavailable, ServersUnknown) as error:
            if request.on_embedder_down is OnEmbedderDown.FAIL:
                raise
            degraded = f"lexical only: {error.message}"
        query = HybridQuery(
            dense=dense,
            lexical=encoder_of(index.language, profile).query(profile.lexical_query(question)),
            filter=SearchFilter(
                kinds=context.kinds,
                context=context.paths,
                scope=context.scope,
                concepts=context.concepts,
                without=decided,
            ),
            limit=request.limit,
            prefetch=profile.prefetch,
            lexical_weight=profile.lexical_weight,
            lexical_half=profile.lexical_half,
        )
        return cls(services, request, context, question, generation, decided, query, degraded)

    def run(self) -> Recall:
        """Fetch, check against the registry, and fetch further until the limit is full or nothing is left."""
        limit, dropped = self.request.limit, Counter[Drop]()
        kept: dict[str, _Checked] = {}
        offset, size = 0, limit + min(limit, 10)
        for _ in range(_MOST_ROUNDS):
            query = replace(self.query, limit=size, offset=offset)
            hits = self.services.index.search(self.generation.collection, query)
            kept.update(self._check(hits, dropped))
            if len(kept) >= limit or len(hits) < size:
                break
            offset, size = offset + size, size * 4
        proposals = sorted(kept.values(), key=lambda checked: (-checked.hit.score, checked.card.id))[:limit]
        return Recall(
            workspace=self.request.workspace,
            question=self.question,
            generation=self.generation.number,
            proposals=self._propose(proposals),
            excluded={reason.value: count for reason, count in sorted(dropped.items())},
            decided=self.decided,
            degraded=self.degraded,
        )

    def _check(self, hits: list[IndexHit], dropped: Counter[Drop]) -> dict[str, _Checked]:
        """Hits whose card is current, allowed and in place; the others are counted."""
        if not hits:
            return {}
        ids = [hit.ref for hit in hits if cards_of(hit.ref) == (hit.ref,)]  # what else is there is nobody's card
        with self.services.database.transaction(Role.READER, self.request.workspace, via=self.services.via) as tx:
            current = cards.get_many(tx, self.request.workspace, ids)
            states = generations.states(tx, self.request.workspace, self.generation.number, ids)
        kept = {}
        for hit in hits:
            reason = reason_to_drop(hit, current.get(hit.ref), states.get(hit.ref), self.context)
            if reason:
                dropped[reason] += 1
            else:
                kept[hit.ref] = _Checked(hit, current[hit.ref])
        return kept

    def _propose(self, checked: list[_Checked]) -> tuple[Proposal, ...]:
        """Add branch scores and sources; one request to each server, whatever the number of cards."""
        if not checked:
            return ()
        branches = self.services.index.branch_scores(
            self.generation.collection, [point_id(item.card.id) for item in checked], self.query
        )
        with self.services.database.transaction(Role.READER, self.request.workspace, via=self.services.via) as tx:
            sources = cards.sources_of_cards(tx, self.request.workspace, [item.card.id for item in checked])
        return tuple(
            Proposal(
                rank=rank,
                card=item.card,
                scores=_scores(item.hit, branches[point_id(item.card.id)], lexical_only=self.query.dense is None),
                sources=tuple(source.name for source in sources.get(item.card.id, ())),
            )
            for rank, item in enumerate(checked, start=1)
        )


def reason_to_drop(
    hit: IndexHit, card: MemoryRecord | None, state: ProjectionState | None, context: SearchContext
) -> Drop | None:
    """Why a hit cannot be shown, judged by the registry's current row; none where it can.

    Args:
        card: the row that the hit points to.
        state: what the hit's generation must hold for it.
    """
    if card is None:
        return Drop.MISSING
    if card.status is not CardStatus.ACTIVE:
        return Drop.NOT_ACTIVE
    if state is None or hit.projection_sha256 != state.expected_sha256 or hit.revision != card.revision:
        return Drop.NOT_CURRENT
    if card.kind is CardKind.MEMORY and card.type not in REUSABLE_TYPES:
        return Drop.NOT_REUSABLE
    return None if context.allows(card) else Drop.OUT_OF_CONTEXT


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


def _scores(hit: IndexHit, branches: BranchScores, *, lexical_only: bool) -> Scores:
    return Scores(dense=None if lexical_only else branches.dense, bm25=branches.bm25, fused=hit.score)
