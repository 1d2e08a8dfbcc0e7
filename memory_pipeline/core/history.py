"""The history of a card, told field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

TOLD = (
    "kind", "status", "type", "subject", "detail", "rationale", "question_context", "scope", "concepts", "tables",
    "dependencies", "links",
)  # fmt: skip
"""Fields of a stored card that a person wrote or decided, in the order in which they are told."""


class FieldChange(BaseModel):
    """One field that a revision changed. Lists also tell which members went and came."""

    model_config = ConfigDict(frozen=True)

    field: str
    before: JsonValue
    after: JsonValue
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """The change as a person reads it: `- ` for what went, `+ ` for what came."""
        if isinstance(self.before, list) and isinstance(self.after, list):
            moved = () if self.removed or self.added else ("~ the order",)
            return (*(f"- {item}" for item in self.removed), *(f"+ {item}" for item in self.added), *moved)
        return f"- {self.before}", f"+ {self.after}"


class Revision(BaseModel):
    """One revision of a card: who made it, when, by which door (`via`), and what it changed.

    The first one changes nothing: it is the card as it was made.
    """

    model_config = ConfigDict(frozen=True)

    revision: int
    at: datetime
    by: str
    via: str
    changes: tuple[FieldChange, ...]


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """What differs between two stored revisions of a card, in the order of `TOLD`."""
    return tuple(
        _change(field, before.get(field), after.get(field)) for field in TOLD if before.get(field) != after.get(field)
    )


def _change(field: str, before: Any, after: Any) -> FieldChange:
    was, now = _members(before), _members(after)
    return FieldChange(
        field=field,
        before=before,
        after=after,
        removed=tuple(item for item in was if item not in now),
        added=tuple(item for item in now if item not in was),
    )


def _members(value: Any) -> list[str]:
    return [_words(item) for item in value] if isinstance(value, list) else []


def _words(item: Any) -> str:
    """A member of a list in one line: a place by its path, a link by relation and target, else as JSON."""
    match item:
        case str():
            return item
        case {"relation": relation, "target": target}:
            return f"{relation} {target}"
        case {"database": database}:
            return ".".join(str(part) for part in (database, *map(item.get, ("schema", "table", "column"))) if part)
        case _:
            return json.dumps(item, ensure_ascii=False, sort_keys=True)
