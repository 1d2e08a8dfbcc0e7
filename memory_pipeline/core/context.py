"""What a search may see: the runtime's place, narrowed by filters that can never replace it."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from memory_pipeline.core.cards import CardKind, MemoryRecord, scope_key
from memory_pipeline.core.dependencies import Dependency, prefixes, serves
from memory_pipeline.core.errors import BadInput, FilterNotAllowed
from memory_pipeline.core.text import fold, require_storable

FIXED_BY_RUNTIME = frozenset({"workspace", "database", "schema", "language"})


class SearchFilters(BaseModel):
    """Filters of one search. Each can only narrow what the runtime allows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str | None = None
    column: str | None = None
    scope: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    kinds: tuple[CardKind, ...] = (CardKind.MEMORY,)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.kinds:
            raise BadInput("a search needs at least one kind of card", hint="leave kinds out to search memories")
        for text in (self.table, self.column, *self.scope, *self.concepts):
            if text is None:
                continue
            if not fold(require_storable(text, "a filter")):  # it would be dropped, and the search be wider than meant
                raise BadInput("a filter is blank", hint="give it a value, or leave it out")
        return self

    @classmethod
    def parse(cls, fields: Any) -> SearchFilters:
        """Read filters as a caller wrote them.

        Raises:
            FilterNotAllowed: a filter on what the runtime fixes.
            BadInput: an unknown filter, or a value of the wrong shape.
        """
        if isinstance(fields, dict) and "kind" in fields and "kinds" not in fields:  # one kind, or several
            fields = {**fields, "kinds": [fields["kind"]]}
            del fields["kind"]
        if isinstance(fields, dict) and (fixed := sorted(FIXED_BY_RUNTIME & fields.keys())):
            raise FilterNotAllowed(
                f"{', '.join(fixed)} cannot be filtered: the runtime fixes it", hint="use the runtime of that place"
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "filters"
            raise BadInput(
                f"filter {place}: {_told(first)}", hint="filters are table, column, scope, concepts and kind or kinds"
            ) from error


def _told(error: ErrorDetails) -> str:
    """What is wrong with a filter. A caller writes lists, whatever they are kept as."""
    return "a list is wanted, as [controlling]" if error["type"] == "tuple_type" else error["msg"]


class SearchContext(BaseModel):
    """The place of a search and its filters, in canonical form. An empty place is served by every card."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[str, ...] = ()
    scope: str | None = None
    concepts: tuple[str, ...] = ()
    kinds: tuple[CardKind, ...] = (CardKind.MEMORY,)

    def allows(self, card: MemoryRecord) -> bool:
        """Whether a card may be proposed here: the check that PostgreSQL's current row has to pass again."""
        return (
            card.kind in self.kinds
            and serves(card.dependencies, self.paths)
            and (self.scope is None or scope_key(card.scope) in ("", self.scope))
            and (not self.concepts or bool({fold(concept) for concept in card.concepts} & set(self.concepts)))
        )

    def specificity(self, card: MemoryRecord) -> int:
        """How much of the place asked for a card names: segments that it shares with it, 0 where it serves them all."""
        paths = [dependency.path() for dependency in card.dependencies]
        shared = (set(prefixes(path)) & set(prefixes(place)) for path in paths for place in self.paths)
        return max(map(len, shared), default=0)


def search_context(
    place: Dependency | None, filters: SearchFilters, *, default_schema: str | None = None
) -> SearchContext:
    """Join the runtime's place with the filters.

    Args:
        place: database and schema of the runtime, or a place within; none for a search of the whole workspace.
        default_schema: the workspace's; a table is in it where the runtime names none, as in cards.

    Raises:
        BadDependency: a column without its table.
        FilterNotAllowed: a table or column where no place is fixed, or the place names another one itself.
    """
    if place is None:
        if filters.table or filters.column:
            raise FilterNotAllowed("a table needs the database it is in", hint="search with a runtime")
        paths: tuple[str, ...] = ()
    else:
        paths = (_narrowed(place, filters).resolved(default_schema).path(),)
    return SearchContext(
        paths=paths,
        scope=scope_key(filters.scope) if filters.scope else None,
        concepts=tuple(sorted({fold(concept) for concept in filters.concepts} - {""})),
        kinds=filters.kinds,
    )


def _narrowed(place: Dependency, filters: SearchFilters) -> Dependency:
    """The place with the filters' table and column where it has none itself; what it has can only be said again."""
    wanted = Dependency(
        database=place.database,
        schema_=place.schema_,
        table=filters.table or place.table,
        column=filters.column or place.column,
    )
    if place.path() not in prefixes(wanted.path()):
        raise FilterNotAllowed("the table of this place cannot be filtered away", hint="search with a wider place")
    return wanted
