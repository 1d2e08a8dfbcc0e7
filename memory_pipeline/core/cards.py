"""Cards: the records of the registry, whatever their kind, and the links between them."""

from __future__ import annotations

import json
import re
from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from memory_pipeline.core.dependencies import Dependency, canonical
from memory_pipeline.core.errors import BadReference, NotReusable
from memory_pipeline.core.text import fingerprint, fold, sha256

_ID = re.compile(r"mem-[0-9]{4,18}")
_TARGET = re.compile(rf"seq:[1-9][0-9]{{0,17}}|{_ID.pattern}")


class Relation(StrEnum):
    """What a link says of its target."""

    REQUIRES = "requires"
    RELATED = "related"
    SUPERSEDES = "supersedes"


class Link(BaseModel):
    """An outgoing, typed link to a card (`mem-0001`) or to a decision of the same session (`seq:5`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    relation: Relation
    target: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not _TARGET.fullmatch(self.target):
            raise BadReference(
                f"a link cannot point to {self.target!r}", hint="point to a card (mem-0001) or a decision (seq:5)"
            )
        return self


class CardKind(StrEnum):
    """Memories are what F2 consumes; exemplars and evidence are asked for by name."""

    MEMORY = "memory"
    EXEMPLAR = "exemplar"
    EVIDENCE = "evidence"


class CardStatus(StrEnum):
    """Only active cards are projected and recalled."""

    DRAFT = "draft"
    IN_REVIEW = "in_review"
    ACTIVE = "active"
    RETIRED = "retired"
    DELETED = "deleted"


class CardContent(BaseModel):
    """What a card says and where it holds: everything that a revision may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    subject: str
    detail: str
    rationale: str = ""
    question_context: str = ""
    scope: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    links: tuple[Link, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fingerprint(self) -> str:
        """Identity of the text: equal for what reads the same."""
        return fingerprint(self.subject, self.detail)

    @property
    def dependencies_sha256(self) -> str:
        """Identity of the set of places, whatever their order."""
        return sha256("\n".join(sorted(dependency.path() for dependency in self.dependencies)))

    @property
    def scope_sha256(self) -> str:
        """Identity of the scope, whatever its order and spelling."""
        return sha256(scope_key(self.scope))

    def equivalent_to(self, other: CardContent) -> bool:
        """Equal text in equal places and scope: what is folded, and what adds provenance rather than a card."""
        return self._identity() == other._identity()

    def _identity(self) -> tuple[str, str, str]:
        return self.fingerprint, self.dependencies_sha256, self.scope_sha256


class MemoryRecord(CardContent):
    """A card as the registry holds it now: one row, at its current revision."""

    workspace: str
    id: str
    kind: CardKind
    revision: int = Field(ge=1)
    status: CardStatus
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str

    @model_validator(mode="after")
    def _only_reusable(self) -> Self:
        if self.kind is CardKind.MEMORY and self.type != "concept_clarified":
            raise NotReusable(self.type)
        return self


def card_id(number: int) -> str:
    """The id of a workspace's n-th card, at least four digits."""
    return f"mem-{number:04d}"


def is_card_id(text: str) -> bool:
    """Whether a text has the form of a card's id; nothing else is worth a look, or can always be looked for."""
    return _ID.fullmatch(text) is not None


def card_number(card: str) -> int:
    """The number in a card's id."""
    return int(card.removeprefix("mem-"))


def scope_key(scope: tuple[str, ...]) -> str:
    """One keyword for a scope: its folded members, sorted, each once. Empty for a card that serves every scope."""
    members = sorted({fold(member) for member in scope} - {""})
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")) if members else ""


def clean_content(content: CardContent, default_schema: str | None) -> CardContent:
    """The form in which content is stored: places resolved, lists without blanks and repetitions."""
    return content.model_copy(
        update={
            "subject": content.subject.strip(),
            "detail": content.detail.strip(),
            "rationale": content.rationale.strip(),
            "scope": _distinct(content.scope),
            "concepts": _distinct(content.concepts),
            "dependencies": canonical(content.dependencies, default_schema),
            "links": tuple(dict.fromkeys(content.links)),
        }
    )


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Each value once by its folded form, as first written."""
    seen: dict[str, str] = {}
    for value in values:
        if key := fold(value):
            seen.setdefault(key, value.strip())
    return tuple(seen.values())
