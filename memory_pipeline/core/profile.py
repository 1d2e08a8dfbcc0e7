"""Embedding profiles: which fields feed which branch of the hybrid search, and how the branches are fused.

The two branches want different texts. The question that created a card says in a user's words what the card is for: it
helps the dense branch and hurts the lexical one. Identifiers are words of the schema: they help the lexical branch. A
card's subject is what people ask for, so the lexical branch reads it once more. `docs/retrieval.md` has the figures.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardContent
from memory_pipeline.core.errors import UnknownProfile
from memory_pipeline.core.text import fold

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Commands of LaTeX that say how a formula looks. Those that name an operation (`\sum`, `\log`) are words, and stay.
_LAYOUT = re.compile(
    r"\\(?:[dt]?frac|text(?:bf|it|rm)?|math(?:rm|bf|it|sf)|operatorname|left|right|begin|end|times|cdot|overline|bar"
    r"|q?quad)(?![A-Za-z])"
)
DEFAULT_PROFILE = "sentence-encoder"


class EmbeddingProfile(BaseModel):
    """One setting for every workspace that names it.

    The fused score of a hit is `dense + lexical_weight * b² / (b² + lexical_half²)`, where `dense` is the cosine
    similarity and `b` the BM25 score. The share saturates, so that a long lexical match cannot drown meaning. It begins
    flat, so that a single word in common says little: a question in another language than the cards shares no more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: int
    query_prefix: str = ""
    lexical_weight: float = 0.8
    lexical_half: float = 8.0
    """BM25 score at which a hit has half of the lexical weight."""
    prefetch: int = 100
    similar: float = 0.8
    """Cosine from which a card is shown beside a candidate that says nearly the same."""
    bm25_k1: float = 3.0
    """Higher than for documents: what a card repeats, its subject above all, is what it is about."""
    bm25_b: float = 0.5
    bm25_average_length: float = 7.0

    def dense_text(self, content: CardContent) -> str:
        """What the embedder reads of a card."""
        statement = _statement(content)
        parts = (statement, content.rationale, content.question_context, ", ".join(content.concepts))
        return "\n".join(part for part in parts if part)

    def lexical_text(self, content: CardContent) -> str:
        """What BM25 reads of a card: its own words and its identifiers, without the question that created it."""
        identifiers = (
            segment
            for dependency in content.dependencies
            for segment in (dependency.table, dependency.column)
            if segment
        )
        words = (" ".join(content.concepts), " ".join(identifiers))
        parts = (content.subject, _statement(content), content.rationale, *words)
        return split_identifiers("\n".join(part for part in parts if part))

    def dense_query(self, question: str) -> str:
        """What the embedder reads of a question."""
        return self.query_prefix + question

    def lexical_query(self, question: str) -> str:
        """What BM25 reads of a question."""
        return split_identifiers(question)


PROFILES = {
    profile.name: profile
    for profile in (
        EmbeddingProfile(name=DEFAULT_PROFILE, version=2),
        # Not tuned: what is lexical holds for any model, but its weight beside this model's cosines was not measured.
        EmbeddingProfile(
            name="qwen3",
            version=2,
            # The model card of qwen3-embedding asks for an instruction on queries and for none on documents.
            query_prefix="Instruct: Given a question on a database, retrieve the concepts that explain it\nQuery:",
        ),
    )
}


def profile_named(name: str) -> EmbeddingProfile:
    """Return a profile, or raise `UnknownProfile`."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UnknownProfile(name, PROFILES) from None


def split_identifiers(text: str) -> str:
    """Parts of camelCase names as words of their own; the analyser itself splits snake_case."""
    return _CAMEL.sub(" ", text)


def _statement(content: CardContent) -> str:
    """Subject and detail, without the subject where the detail says it already, and without the layout of formulas."""
    if not content.detail:
        return content.subject
    detail = _LAYOUT.sub(" ", content.detail)
    subject, said = fold(content.subject), fold(content.detail)
    # The first look is for speed: a pattern of its own for every card costs more than the rest of its projection.
    if subject in said and re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", said):
        return detail
    return f"{content.subject}: {detail}"
