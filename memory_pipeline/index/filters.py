"""What a search may find, in the terms of the domain."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.context import SearchContext


class SearchFilter(BaseModel):
    """The conditions that every hit fulfils. An empty tuple, or none, leaves that side open."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[CardKind, ...] = Field(default=(CardKind.MEMORY,), min_length=1)
    context: tuple[str, ...] = ()
    """Canonical paths (`Dependency.path()`). Found are cards without a dependency, and those with at least one that
    holds a place of the context, or lies within it."""
    scope: str | None = None
    """A scope's key (`scope_key`). Found are cards of that scope, and those without one."""
    concepts: tuple[str, ...] = ()
    """Folded. Found are cards that share at least one."""
    without: tuple[str, ...] = ()
    """Ids of cards that are not wanted."""

    @classmethod
    def of(cls, context: SearchContext, *, without: tuple[str, ...] = ()) -> Self:
        """The conditions that say on the server what `SearchContext.allows` says of a card."""
        return cls(
            kinds=context.kinds, context=context.paths, scope=context.scope, concepts=context.concepts, without=without
        )
