"""What a reviewer may write into a card by hand, and the checks that a card has to pass whatever door it came by."""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memory_pipeline.core.candidates import is_table_name
from memory_pipeline.core.cards import CardContent, CardKind, clean_content
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadCard, EvidenceNotCurated, NotAConcept, NotReusable
from memory_pipeline.core.ledger import REUSABLE_TYPES, EntryType
from memory_pipeline.core.text import fold, require_storable

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,99}")


class CardFields(BaseModel):
    """Fields of a card that a reviewer gives; none means: as it is. Links have commands of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str | None = None
    subject: str | None = None
    detail: str | None = None
    rationale: str | None = None
    question_context: str | None = None
    scope: tuple[str, ...] | None = None
    concepts: tuple[str, ...] | None = None
    dependencies: tuple[Dependency, ...] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in (("subject", self.subject), ("detail", self.detail)):
            if value is not None and not fold(value):
                raise BadCard(f"the {name} of a card is blank", hint="say what the card is about, and what it means")
        return self

    @classmethod
    def parse(cls, fields: Any) -> CardFields:
        """Read fields as a caller wrote them.

        Raises:
            BadCard: an unknown field, a value of the wrong shape, or a blank subject or detail.
            BadDependency, BadText: a place that cannot be.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "fields"
            raise BadCard(
                f"card field {place}: {first['msg']}", hint=f"the fields are {', '.join(cls.model_fields)}"
            ) from error

    def over(self, content: CardContent, default_schema: str | None) -> CardContent:
        """The content with these fields in place of its own, in the form in which content is stored."""
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        return clean_content(content.model_copy(update=given), default_schema)


def blank_content(kind: CardKind) -> CardContent:
    """What a new card starts from."""
    return CardContent(type=own_type(kind), subject="", detail="")


def own_type(kind: CardKind) -> str:
    """The type of a kind: clarified concepts for memories, a type of its own for each other one."""
    return EntryType.CONCEPT_CLARIFIED if kind is CardKind.MEMORY else kind.value


def require_card(kind: CardKind, content: CardContent) -> CardContent:
    """Return the content, or raise where it cannot be a live card of this kind.

    Raises:
        NotReusable: a memory of a type that is not reusable.
        NotAConcept: a memory whose subject is only a table's name.
        BadCard: a blank subject, or another kind with a type of the ledger.
        BadText: a text that PostgreSQL cannot hold.
        EvidenceNotCurated: evidence is made live by its own review alone.
    """
    if kind is CardKind.EVIDENCE:
        raise EvidenceNotCurated("made live")
    for text in _texts(content):
        require_storable(text, "a card")
    if not fold(content.subject):
        raise BadCard("the subject of a card is blank", hint="say what the card is about")
    if kind is CardKind.MEMORY:
        if content.type not in REUSABLE_TYPES:
            raise NotReusable(content.type)
        if is_table_name(content.subject):
            raise NotAConcept(content.subject)
    elif not _TYPE.fullmatch(content.type) or content.type in set(EntryType):
        raise BadCard(
            f"{content.type[:80]!r} is no type of an {kind}",
            hint=f"use {own_type(kind)!r}, or another word of a-z, 0-9 and '_' that is no type of the ledger",
        )
    return content


def _texts(content: CardContent) -> tuple[str, ...]:
    """Every text of a card; those of dependencies and links are checked where these are made."""
    return (
        content.type,
        content.subject,
        content.detail,
        content.rationale,
        content.question_context,
        *content.scope,
        *content.concepts,
        *content.tables,
    )
