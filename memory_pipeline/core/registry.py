"""`registry.jsonl`: the cards of one workspace, one JSON object a line, for another registry or for a drawer.

A file is written from the store alone, and is the same byte for byte as long as the cards are. What is read from one is
checked as any other card; a line that cannot be taken is told with its reason, and the others are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, MemoryRecord, Relation, clean_content
from memory_pipeline.core.curation import require_card
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadCard,
    BadDependency,
    BadLedgerLine,
    BadRegistryLine,
    BadText,
    NotAConcept,
)
from memory_pipeline.core.ledger import REUSABLE_TYPES, decode_line, readable, require_storable_json

QUARANTINED_BYTES = 64 * 1024
"""So much of a line that is not taken is kept."""


def _utc(value: datetime) -> datetime:
    """Times in UTC, so that a file does not depend on the time zone of a connection."""
    return value.astimezone(UTC)


Time = Annotated[AwareDatetime, AfterValidator(_utc)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class RegistryLink(BaseModel):
    """A link as the file has it: to a card of the same registry, or to a decision of a session of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    relation: Relation
    target: Name


class RegistrySource(BaseModel):
    """Where a card came from. `imported` is the source that a registry before this one gave."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provenance: Literal["promotion", "curation", "import"]
    session: str | None = None
    seq: int | None = None
    decided_at: Time
    decided_by: str
    via: str
    imported: JsonValue = None


class RegistryRecord(BaseModel):
    """One line: a card at its current revision, with everything behind it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    workspace: Name
    id: Name
    kind: CardKind = CardKind.MEMORY
    status: CardStatus = CardStatus.ACTIVE
    revision: Annotated[int, Field(ge=1)] = 1
    type: str
    subject: str
    detail: str
    rationale: str = ""
    question_context: str = ""
    scope: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    links: tuple[RegistryLink, ...] = ()
    created_at: Time | None = None
    created_by: str = ""
    updated_at: Time | None = None
    updated_by: str = ""
    sources: tuple[RegistrySource, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What names the card among all registries: its workspace there and its id."""
        return self.workspace, self.id

    def line(self) -> bytes:
        """The line, with its newline."""
        fields = self.model_dump(mode="json")
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class NumberedRecord(NamedTuple):
    """A record that can be taken: where it stands, and the content that its card would have, links left out."""

    line_number: int
    record: RegistryRecord
    content: CardContent


class RefusedRecord(NamedTuple):
    """A line that is not taken, and its beginning."""

    line_number: int
    reason: str
    message: str
    line: bytes


class Reading(NamedTuple):
    """A whole file: what can be taken, in file order, and what cannot."""

    records: tuple[NumberedRecord, ...]
    refused: tuple[RefusedRecord, ...]


def record_of(card: MemoryRecord, sources: Iterable[RegistrySource]) -> RegistryRecord:
    """The record of a card."""
    fields = card.model_dump(exclude={"fingerprint", "links"})
    links = tuple(RegistryLink(relation=link.relation, target=link.target) for link in card.links)
    return RegistryRecord(**fields, links=links, sources=tuple(sources))


def read_records(lines: Iterable[bytes], default_schema: str | None) -> Reading:
    """Read a file.

    Args:
        lines: without their newlines; blank ones are passed over.
        default_schema: of the workspace that would take the cards.
    """
    records: list[NumberedRecord] = []
    refused: list[RefusedRecord] = []
    seen: dict[object, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(line)
            content = _content(record, default_schema)
            identity = (content.fingerprint, content.dependencies_sha256, content.scope_sha256)
            for what, key in (("is the card", record.key), ("says the same as the card", identity)):
                if first := seen.get(key):
                    raise BadRegistryLine("duplicate", f"the line {what} of line {first}")
        except BadRegistryLine as error:
            refused.append(RefusedRecord(number, error.reason, error.message, line[:QUARANTINED_BYTES]))
        else:
            seen.update({record.key: number, identity: number})
            records.append(NumberedRecord(number, record, content))
    return Reading(tuple(records), tuple(refused))


def parse_record(line: bytes) -> RegistryRecord:
    """Read one line as a record that may become a memory.

    Raises:
        BadRegistryLine: with a short reason and a message.
    """
    try:
        fields = decode_line(line)
        require_storable_json(fields, "the line")
    except BadLedgerLine as error:
        raise BadRegistryLine(error.reason, error.message) from error
    except BadText as error:
        raise BadRegistryLine("shape", error.message) from error
    if isinstance(fields, dict):
        _require_reusable(fields)
    try:
        record = RegistryRecord.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        reason = "unknown_field" if first["type"] == "extra_forbidden" else "shape"
        raise BadRegistryLine(reason, readable(f"{place}: {first['msg']}")) from error
    except BadDependency as error:
        raise BadRegistryLine("shape", readable(error.message)) from error
    if record.status is not CardStatus.ACTIVE:
        raise BadRegistryLine("not_active", f"the card is {record.status}: only live ones are taken")
    return record


def _require_reusable(fields: dict[str, Any]) -> None:
    """Told before anything else is looked at: records of old registries have other fields too."""
    type_, kind = fields.get("type"), fields.get("kind", CardKind.MEMORY.value)
    if isinstance(type_, str) and type_ not in REUSABLE_TYPES:
        raise BadRegistryLine("not_reusable", readable(f"a record of type {type_!r} never becomes a memory"))
    if isinstance(kind, str) and kind != CardKind.MEMORY:
        raise BadRegistryLine("not_reusable", readable(f"a card of kind {kind!r} is not taken from a file"))


def _content(record: RegistryRecord, default_schema: str | None) -> CardContent:
    """The content of its card, checked as any memory. New memories bring no tables of their own; links come later."""
    content = clean_content(
        CardContent(
            type=record.type,
            subject=record.subject,
            detail=record.detail,
            rationale=record.rationale,
            question_context=record.question_context,
            scope=record.scope,
            concepts=record.concepts,
            dependencies=record.dependencies,
        ),
        default_schema,
    )
    try:
        require_card(CardKind.MEMORY, content)
    except NotAConcept as error:
        raise BadRegistryLine("table_name", readable(error.message)) from error
    except BadCard as error:
        raise BadRegistryLine("shape", readable(error.message)) from error
    return content
