"""What says nearly the same as a candidate: shown to the reviewer beside it, never merged.

Neighbours among the active memories come from the index, by both branches of the search; other candidates of the
session are compared by their words alone. Without an index or an embedder less is looked up, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.candidates import Candidate
from memory_pipeline.core.cards import CardContent, MemoryRecord
from memory_pipeline.core.context import SearchContext
from memory_pipeline.core.errors import ConfigurationError, EmbedderUnavailable, IndexUnavailable
from memory_pipeline.core.profile import EmbeddingProfile, profile_named
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.similarity import Statement, are_near, numbers_apart, overlap, statement_of
from memory_pipeline.embedding.dense import Embedded, Vector
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.operations.hits import reason_to_drop
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation

MOST_SIMILAR = 5
"""Neighbours shown with a candidate, of the registry and of the session each."""

LONGEST_EMBEDDED = 8000
"""Characters. The neighbours of a longer text are looked up by its words alone: embedding it would take seconds."""

_FETCHED = 20


class LookedUp(StrEnum):
    """How neighbours were looked for among the active memories."""

    HYBRID = "hybrid"
    LEXICAL = "lexical"
    NOT_AT_ALL = "not_at_all"

    @property
    def told(self) -> str:
        """In words."""
        return {
            "hybrid": "similar memories were looked up in full",
            "lexical": "similar memories were looked up by their words alone",
            "not_at_all": "no similar memories were looked up",
        }[self.value]


class Similarity(BaseModel):
    """How neighbours were looked for, and what stood in the way."""

    model_config = ConfigDict(frozen=True)

    looked_up: LookedUp
    problem: str | None = None


class Similar(BaseModel):
    """A neighbour: a card (`mem-0001`), or another candidate of the session (`seq:5`).

    `cosine` compares meanings, none where it was not asked for; `overlap` is the share of common words, 0 to 1. Numbers
    that only the candidate has are in `numbers_here`, those that only the neighbour has in `numbers_there`.
    """

    model_config = ConfigDict(frozen=True)

    ref: str
    subject: str
    detail: str
    cosine: float | None
    overlap: float
    numbers_here: tuple[str, ...]
    numbers_there: tuple[str, ...]

    @property
    def score(self) -> float:
        """The nearer of both views."""
        return max(self.cosine or 0.0, self.overlap)


Neighbours = dict[int, tuple[Similar, ...]]
"""By the seq of the candidate; nearest first."""


def similar_to(
    services: Services, workspace: str, shown: Sequence[Candidate], session: Sequence[Candidate]
) -> tuple[Neighbours, Similarity]:
    """Look for what says nearly the same as each candidate shown. Never fails for want of a server.

    Args:
        session: every candidate of the session, those shown among them.
    """
    registry, similarity = _of_registry(services, workspace, shown)
    prepared = [(candidate, statement_of(candidate.content)) for candidate in session]
    return {
        candidate.seq: (*registry.get(candidate.seq, ()), *_of_session(candidate, prepared)) for candidate in shown
    }, similarity


def _of_session(candidate: Candidate, session: list[tuple[Candidate, Statement]]) -> tuple[Similar, ...]:
    here = statement_of(candidate.content)
    found = (
        _similar(f"seq:{other.seq}", other.content, here, there, cosine=None)
        for other, there in session
        if other.seq != candidate.seq and are_near(here, there)
    )
    return _nearest(found)


def _of_registry(
    services: Services, workspace: str, shown: Sequence[Candidate]
) -> tuple[Mapping[int, tuple[Similar, ...]], Similarity]:
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        generation = generations.serving(tx, workspace)
    if generation is None:
        return {}, Similarity(looked_up=LookedUp.NOT_AT_ALL, problem="the workspace has no index yet")
    lookup = _Lookup(services, workspace, generation, profile_named(generation.format.profile))
    try:
        vectors, problem = lookup.embed([candidate.content for candidate in shown])
        found = {
            candidate.seq: lookup.neighbours(candidate.content, vector)
            for candidate, vector in zip(shown, vectors, strict=True)
        }
    except (IndexUnavailable, ConfigurationError) as error:
        return {}, Similarity(looked_up=LookedUp.NOT_AT_ALL, problem=error.message)
    return found, Similarity(looked_up=LookedUp.LEXICAL if problem else LookedUp.HYBRID, problem=problem)


class _Lookup(NamedTuple):
    """One generation of the index, asked for the neighbours of texts that are not in it yet."""

    services: Services
    workspace: str
    generation: Generation
    profile: EmbeddingProfile

    def embed(self, contents: Sequence[CardContent]) -> tuple[list[Vector | None], str | None]:
        """The vector of each text, as its card would have it, none for a text that gets none; and why none has one."""
        texts = [self.profile.dense_text(content) for content in contents]
        short = [text for text in texts if len(text) <= LONGEST_EMBEDDED]
        index = self.generation.format
        try:
            outcomes = self.services.embedder.embed(index.model, short, dimensions=index.dimensions)
        except EmbedderUnavailable as error:
            return [None] * len(texts), error.message
        vectors = {
            text: outcome.vector for text, outcome in zip(short, outcomes, strict=True) if isinstance(outcome, Embedded)
        }
        return [vectors.get(text) for text in texts], None

    def neighbours(self, content: CardContent, vector: Vector | None) -> tuple[Similar, ...]:
        """The nearest active memories in the places of the text; one that says the very same is not among them."""
        context = SearchContext(paths=tuple(dependency.path() for dependency in content.dependencies))
        query = self._query(content, vector, context)
        current = self._current(query, context)
        if not current:
            return ()
        ids = [point_id(card.id) for card in current]
        scores = self.services.index.branch_scores(self.generation.collection, ids, query)
        here, found = statement_of(content), []
        for card in current:
            there = statement_of(card)
            cosine = None if vector is None else scores[point_id(card.id)].dense
            near = are_near(here, there) or (cosine or 0.0) >= self.profile.similar
            if near and not card.equivalent_to(content):
                found.append(_similar(card.id, card, here, there, cosine=cosine))
        return _nearest(found)

    def _query(self, content: CardContent, vector: Vector | None, context: SearchContext) -> HybridQuery:
        profile = self.profile
        return HybridQuery(
            dense=vector,
            lexical=encoder_of(self.generation.format.language, profile).query(profile.lexical_text(content)),
            filter=SearchFilter(kinds=context.kinds, context=context.paths),
            limit=_FETCHED,
            prefetch=profile.prefetch,
            lexical_weight=profile.lexical_weight,
            lexical_half=profile.lexical_half,
        )

    def _current(self, query: HybridQuery, context: SearchContext) -> list[MemoryRecord]:
        """Current cards behind the hits: a hit itself is only a pointer."""
        hits = self.services.index.search(self.generation.collection, query)
        ids = [hit.ref for hit in hits]
        with self.services.database.transaction(Role.HARNESS, self.workspace, via=self.services.via) as tx:
            known = cards.get_many(tx, self.workspace, ids)
            states = generations.states(tx, self.workspace, self.generation.number, ids)
        return [
            known[hit.ref]
            for hit in hits
            if reason_to_drop(hit, known.get(hit.ref), states.get(hit.ref), context) is None
        ]


def _similar(ref: str, other: CardContent, here: Statement, there: Statement, *, cosine: float | None) -> Similar:
    apart = numbers_apart(here, there)
    return Similar(
        ref=ref,
        subject=other.subject,
        detail=other.detail,
        cosine=cosine,
        overlap=round(overlap(here, there), 4),
        numbers_here=apart.here,
        numbers_there=apart.there,
    )


def _nearest(found: Iterable[Similar]) -> tuple[Similar, ...]:
    return tuple(sorted(found, key=lambda similar: (-similar.score, similar.ref))[:MOST_SIMILAR])
