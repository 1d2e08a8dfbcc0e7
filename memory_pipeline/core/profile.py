"""Embedding profiles: which fields feed which branch of the hybrid search, and how the branches are fused.

The two branches want different texts. The question that created a card says in a user's words what the card is for: it
helps the dense branch and hurts the lexical one. Identifiers are words of the schema: they help the lexical branch.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardContent
from memory_pipeline.core.errors import UnknownProfile
from memory_pipeline.core.text import fold

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
DEFAULT_PROFILE = "sentence-encoder"


class EmbeddingProfile(BaseModel):
    """One setting for every workspace that names it.

    The fused score of a hit is `dense + lexical_weight * b / (b + lexical_half)`, where `dense` is the cosine
    similarity and `b` the BM25 score: a saturating share, so that a long lexical match cannot drown meaning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: int
    query_prefix: str = ""
    lexical_weight: float = 1.2
    lexical_half: float = 10.0
    prefetch: int = 100
    similar: float = 0.8
    """Cosine from which a card is shown beside a candidate that says nearly the same."""
    bm25_k1: float = 1.2
    bm25_b: float = 0.75
    bm25_average_length: float = 40.0

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
        parts = (_statement(content), content.rationale, " ".join(content.concepts), " ".join(identifiers))
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
        EmbeddingProfile(name=DEFAULT_PROFILE, version=1),
        EmbeddingProfile(
            name="qwen3",
            version=1,
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
    """Subject and detail, without the subject where the detail says it already."""
    if not content.detail:
        return content.subject
    if re.search(rf"(?<!\w){re.escape(fold(content.subject))}(?!\w)", fold(content.detail)):
        return content.detail
    return f"{content.subject}: {content.detail}"
