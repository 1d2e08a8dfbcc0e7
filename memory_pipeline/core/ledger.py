"""One session's append-only ledger: what a line is, and which lines are refused.

The pure reading of one line: bytes in, an entry or a `BadLedgerLine` out. Which entries are effective is in
`core.effective`; what becomes of them in `core.candidates`.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from memory_pipeline.core.cards import Link
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadDependency, BadInput, BadLedgerLine, BadReference, BadText
from memory_pipeline.core.text import require_storable

MAX_LINE_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_QUESTION = 8000
"""Characters, of a question in a ledger and of one that is searched: longer texts are documents, not questions."""
MAX_SEQ = 10**18 - 1
"""Eighteen digits: what a reference `seq:N` can name."""

_LONGEST_MESSAGE = 300
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class EntryType(StrEnum):
    """The types that are known. Any other is stored and inert."""

    SESSION_OPENED = "session_opened"
    CONCEPT_CLARIFIED = "concept_clarified"
    TABLE_PROMOTED = "table_promoted"
    TABLE_EXCLUDED = "table_excluded"
    COLUMN_PROMOTED = "column_promoted"
    COLUMN_EXCLUDED = "column_excluded"
    MEMORY_PROMOTED = "memory_promoted"
    MEMORY_PROMOTION_DECLINED = "memory_promotion_declined"
    MEMORY_REJECTED = "memory_rejected"
    DECISION_RETRACTED = "decision_retracted"
    PHASE_REOPENED = "phase_reopened"
    PHASE_ROLLED_BACK = "phase_rolled_back"
    SESSION_CLOSED = "session_closed"


REUSABLE_TYPES = frozenset({EntryType.CONCEPT_CLARIFIED})
"""What a memory may be made of. Every boundary asks this set, from the preview to what a search shows."""

CONTROL_TYPES = frozenset(
    {EntryType.SESSION_OPENED, EntryType.SESSION_CLOSED, EntryType.PHASE_REOPENED, EntryType.PHASE_ROLLED_BACK}
)
"""Never stale and never retracted."""

MARKER_TYPES = frozenset({EntryType.MEMORY_PROMOTED, EntryType.MEMORY_PROMOTION_DECLINED})
"""Written by the pipeline at the gate; in a file they are history."""

DECISION_TYPES = frozenset(EntryType) - CONTROL_TYPES - MARKER_TYPES
"""What can be effective, stale or retracted."""

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9990, 1, 1, tzinfo=UTC)


def _require_text(value: object) -> object:
    """Only ISO text is a time stamp here; pydantic alone would take numbers too, and text with a number in it."""
    if not isinstance(value, datetime) and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("a time stamp is text such as 2026-09-09T08:15:00Z")
    return value


Timestamp = Annotated[AwareDatetime, BeforeValidator(_require_text), Field(ge=_EARLIEST, le=_LATEST)]
Number = Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ)]
TypeName = Annotated[str, Field(min_length=1, max_length=100)]


class LedgerDraft(BaseModel):
    """An entry before it has its number: what `ledger append` takes, one JSON object a line."""

    model_config = ConfigDict(frozen=True, extra="allow")

    ts: Timestamp
    type: TypeName
    phase: Annotated[str, Field(max_length=100)] | None = None
    subject: str | None = None
    detail: str = ""
    rationale: str = ""
    question: Annotated[str, Field(max_length=MAX_QUESTION)] | None = None
    actor: str | None = None
    concepts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    links: tuple[Link, ...] = ()
    memories: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type in DECISION_TYPES - {EntryType.DECISION_RETRACTED} and not (self.subject or "").strip():
            raise ValueError(f"a {self.type} needs a subject")
        if self.extra_fields.get("origin", "harness") != "harness":
            raise ValueError("only the pipeline writes rows of origin pipeline")
        # Dependencies and links have checked themselves.
        require_storable_json(self.__dict__, "the line")
        require_storable_json(self.extra_fields, "the line")
        return self

    @property
    def extra_fields(self) -> dict[str, JsonValue]:
        """Fields of the line that this version does not know; kept as they are."""
        return self.model_extra or {}


class LedgerEntry(LedgerDraft):
    """One line of a session's ledger, with the number that the harness or the door gave it."""

    seq: Number


_Draft = TypeVar("_Draft", bound=LedgerDraft)


def require_session_id(session_id: str) -> str:
    """Return the id, or raise `BadInput`: it also names a file."""
    if not _SESSION.fullmatch(session_id):
        raise BadInput(
            f"{session_id[:80]!r} cannot name a session",
            hint="use 1 to 200 letters, digits, '.', '_' and '-', starting with a letter or digit",
        )
    return session_id


def parse_entry(line: bytes, *, after: int) -> LedgerEntry:
    """Read one line of a file.

    Args:
        line: the bytes without the newline.
        after: the highest seq taken so far in this session; a line must have a higher one.

    Raises:
        BadLedgerLine: with a short reason and a message; the caller quarantines the line and goes on.
    """
    entry = _validate(LedgerEntry, decode_line(line))
    if entry.seq <= after:
        reason = "duplicate_seq" if entry.seq == after else "falling_seq"
        raise BadLedgerLine(reason, f"seq {entry.seq} does not rise above {after}")
    return entry


def parse_draft(line: bytes) -> LedgerDraft:
    """Read one line of `ledger append`. The door assigns `seq`, and markers are the pipeline's alone.

    Raises:
        BadLedgerLine: as `parse_entry`, and for a line that brings a `seq` or is a marker.
    """
    fields = decode_line(line)
    if isinstance(fields, dict) and "seq" in fields:
        raise BadLedgerLine("seq_given", "the door assigns seq; a line must not bring one")
    draft = _validate(LedgerDraft, fields)
    if draft.type in MARKER_TYPES:
        raise BadLedgerLine("marker", f"{draft.type} is written by the pipeline at the gate, never appended")
    return draft


def _validate(model: type[_Draft], fields: object) -> _Draft:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        raise BadLedgerLine("shape", readable(f"{place}: {first['msg'].removeprefix('Value error, ')}")) from error
    except (BadDependency, BadReference, BadText) as error:
        raise BadLedgerLine("shape", readable(error.message)) from error


def decode_line(line: bytes) -> object:
    """The JSON of one line, whatever its shape.

    Raises:
        BadLedgerLine: too long, too deep, not UTF-8, or not JSON as the standard has it.
    """
    if len(line) > MAX_LINE_BYTES:
        raise BadLedgerLine("too_long", f"the line has {len(line)} bytes; {MAX_LINE_BYTES} are allowed")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLedgerLine("not_utf8", f"byte {error.start} is not UTF-8") from error
    if _depth_exceeds(text, MAX_DEPTH):
        raise BadLedgerLine("too_deep", f"the line nests deeper than {MAX_DEPTH} levels")
    try:
        return _DECODER.decode(text)
    except ValueError as error:  # JSONDecodeError and the limit on digits are both ValueErrors
        raise BadLedgerLine("not_json", readable(f"not JSON: {error}")) from error


def readable(message: str) -> str:
    """A message that may quote the line, short, and without signs that a terminal or PostgreSQL would choke on."""
    shown = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown)


def _depth_exceeds(text: str, limit: int) -> bool:
    """Whether brackets nest deeper than the limit, outside strings. A guard for the parser's own recursion."""
    if text.count("[") + text.count("{") <= limit:
        return False
    depth, inside, escaped = 0, False, False
    for sign in text:
        if inside:
            if escaped:
                escaped = False
            elif sign == "\\":
                escaped = True
            elif sign == '"':
                inside = False
        elif sign == '"':
            inside = True
        elif sign in "[{":
            depth += 1
            if depth > limit:
                return True
        elif sign in "]}":
            depth -= 1
    return False


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is out of range")
    return value


def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two equal ones, readers disagree which one counts."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"the key {key!r} occurs more than once in one object")
        fields[key] = value
    return fields


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=without_repetition)


def require_storable_json(value: Any, what: str) -> None:
    """Raise `BadText` where any text of a JSON value, keys among them, is one that PostgreSQL could not hold."""
    if isinstance(value, str):
        require_storable(value, what)
    elif isinstance(value, dict):
        for key, item in value.items():
            require_storable(key, what)
            require_storable_json(item, what)
    elif isinstance(value, (list, tuple)):
        for item in value:
            require_storable_json(item, what)
