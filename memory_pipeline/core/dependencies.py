"""Where a memory holds: physical dependencies, the context of a search, and when the one serves the other.

A dependency is a path of up to four segments: database, schema, table, column. A context is a set of such paths. What
is said of a table serves a search on one of its columns, and a search on a whole database finds what is said of its
tables: a card serves a context where one of its paths begins one of the context, or the other way round.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from memory_pipeline.core.errors import BadDependency
from memory_pipeline.core.text import require_storable

SEPARATOR = "/"


class Dependency(BaseModel):
    """One structured reference to a place in a database. A parent may be left out only where nothing hangs on it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        str_strip_whitespace=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    database: str
    schema_: str | None = Field(default=None, alias="schema")  # pydantic keeps the plain name for itself
    table: str | None = None
    column: str | None = None

    @field_validator("*", mode="before")  # ahead of pydantic's own check, which has no name for it
    @classmethod
    def _storable(cls, value: object, field: ValidationInfo) -> object:
        if isinstance(value, str):
            require_storable(value, f"the {(field.field_name or '').rstrip('_')} of a dependency")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("database", "schema_", "table", "column"):
            if getattr(self, name) == "":
                raise BadDependency(f"the {name.rstrip('_')} of a dependency is empty", hint="name it or leave it out")
        if self.column is not None and self.table is None:
            raise BadDependency(f"column {self.column!r} is named without its table", hint="add the table")
        return self

    def resolved(self, default_schema: str | None) -> Dependency:
        """The same with the workspace's default schema where a table lacks one."""
        if self.table is None or self.schema_ is not None or not default_schema:
            return self
        return self.model_copy(update={"schema_": default_schema})

    def path(self) -> str:
        """The canonical path. A missing schema before a table is the empty segment."""
        segments = list(self._segments())
        while segments and segments[-1] is None:
            segments.pop()
        return SEPARATOR.join(_escape(segment or "") for segment in segments)

    def _segments(self) -> tuple[str | None, ...]:
        return (self.database, self.schema_, self.table, self.column)


def prefixes(path: str) -> tuple[str, ...]:
    """Every ancestor of a path and the path itself, outermost first.

    An empty schema segment is no place of its own: `db/` is left out, so that a context of the database reaches the
    table through `db` alone.
    """
    segments = path.split(SEPARATOR)
    grown = [SEPARATOR.join(segments[:length]) for length in range(1, len(segments) + 1)]
    return tuple(part for part in grown if not part.endswith(SEPARATOR))


def serves(dependencies: Iterable[Dependency], context: Iterable[str]) -> bool:
    """Whether a card with these dependencies serves a search in this context (canonical paths).

    A card without dependencies serves everything; an empty context is served by everything.
    """
    paths = [dependency.path() for dependency in dependencies]
    places = list(context)
    if not paths or not places:
        return True
    return any(_related(path, place) for path in paths for place in places)


def canonical(dependencies: Iterable[Dependency], default_schema: str | None) -> tuple[Dependency, ...]:
    """Resolved against the default schema, each place once, ordered by path."""
    by_path: dict[str, Dependency] = {}
    for dependency in dependencies:
        resolved = dependency.resolved(default_schema)
        by_path.setdefault(resolved.path(), resolved)
    return tuple(by_path[path] for path in sorted(by_path))


def _related(path: str, place: str) -> bool:
    return path in prefixes(place) or place in prefixes(path)


def _escape(segment: str) -> str:
    """NFC, case-folded; the separator, the escape sign and control characters as percent codes."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", segment).casefold())
    return "".join(f"%{ord(sign):02X}" if sign in "%/" or ord(sign) < 0x20 else sign for sign in folded)
