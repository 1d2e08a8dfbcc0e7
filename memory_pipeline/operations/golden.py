"""Golden questions: what a workspace's recall must find, said by its reviewer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_pipeline.core.cards import CardStatus, MemoryRecord, is_card_id
from memory_pipeline.core.context import SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.display import told_time
from memory_pipeline.core.errors import BadGolden, CardDeleted, MemoryPipelineError, UnknownCard
from memory_pipeline.core.ledger import MAX_QUESTION, without_repetition
from memory_pipeline.core.text import fold, require_storable
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.given import read_file, read_yaml
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, golden, workspaces
from memory_pipeline.store.database import Role, Transaction

_LONGEST = 16_000_000  # bytes of a file
_LONGEST_NAME = 255  # no database has a longer one, and PostgreSQL's index on these rows takes no much longer one


class GoldenQuestion(BaseModel):
    """A question, the cards that must answer it, and where it is asked; none: in the place of who adds it."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    question: str
    expected: tuple[str, ...] = Field(min_length=1)
    database: str | None = None
    schema_: str | None = Field(default=None, alias="schema")


class StoredGolden(BaseModel):
    """A golden question of a workspace."""

    model_config = ConfigDict(frozen=True)

    number: int
    question: str
    place: Dependency
    expected: tuple[str, ...]
    added_at: datetime
    added_by: str


class GoldenList(BaseModel):
    """Every golden question of a workspace."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    questions: tuple[StoredGolden, ...]


class GoldenAdded(BaseModel):
    """What came of adding: new questions, and those that were there and have other cards now."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    added: int
    replaced: int


def add_golden(
    services: Services, workspace: str, questions: Sequence[GoldenQuestion], place: Dependency
) -> GoldenAdded:
    """Add golden questions, as the reviewer, all or none. One that is asked there already gets these cards instead.

    Args:
        place: where a question is asked that names no database.

    Raises:
        BadGolden: a blank or overlong question or name, or an expected card that no search in that place can find.
        UnknownCard, CardDeleted: an expected card that is not there.
        BadText, BadDependency: a place that cannot be.
        UnknownWorkspace, WorkspaceRetired.
    """
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        settings = workspaces.get_active(tx, workspace)
        new = [_put(tx, settings, question, place) for question in questions]
    return GoldenAdded(workspace=workspace, added=sum(new), replaced=len(new) - sum(new))


def import_golden(services: Services, workspace: str, file: Path, place: Dependency) -> GoldenAdded:
    """Add the golden questions of a file, all or none: JSON lines, or one YAML list. Fields are `GoldenQuestion`'s.

    Raises:
        BadGolden: the file cannot be read, or a question of it be used; names where.
        UnknownCard, CardDeleted, BadText, BadDependency, UnknownWorkspace, WorkspaceRetired: as for `add_golden`.
    """
    return add_golden(services, workspace, [_question(where, row) for where, row in _rows(file)], place)


def list_golden(services: Services, workspace: str) -> GoldenList:
    """Show the golden questions of a workspace, oldest first."""
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        return GoldenList(workspace=workspace, questions=tuple(map(_stored, golden.listed(tx, workspace))))


def _put(tx: Transaction, workspace: Workspace, question: GoldenQuestion, place: Dependency) -> bool:
    text = require_storable(question.question, "a golden question").strip()
    if not fold(text) or len(text) > MAX_QUESTION:
        raise BadGolden(repr(text[:80]), f"a question has 1 to {MAX_QUESTION} characters")
    asked = _asked_in(question, place)
    if any(len(name) > _LONGEST_NAME for name in (asked.database, asked.schema_ or "")):
        raise BadGolden(repr(text[:80]), f"the name of its database or schema has over {_LONGEST_NAME} characters")
    known = cards.get_many(tx, workspace.slug, [card_id for card_id in question.expected if is_card_id(card_id)])
    for card_id in question.expected:
        if card_id not in known:
            raise UnknownCard(workspace.slug, card_id[:80])
        _require_findable(workspace, known[card_id], text, asked)
    return golden.put(tx, workspace.slug, text, asked, dict.fromkeys(question.expected))


def _asked_in(question: GoldenQuestion, place: Dependency) -> Dependency:
    if question.database:
        return Dependency(database=question.database, schema_=question.schema_)
    if question.schema_:
        raise BadGolden(repr(question.question[:80]), f"schema {question.schema_!r} is named without its database")
    return place


def _require_findable(workspace: Workspace, card: MemoryRecord, question: str, asked: Dependency) -> None:
    """Raise where no search in that place can propose the card: the question would be missed for ever."""
    if card.status is CardStatus.DELETED:
        raise CardDeleted(card.id, card.updated_by, told_time(card.updated_at))
    context = search_context(asked, SearchFilters(), default_schema=workspace.default_schema)
    if card.status is not CardStatus.ACTIVE:
        why = f"is {card.status.replace('_', ' ')}"
    elif card.kind not in context.kinds:
        why = f"is {card.kind}, not a memory"
    elif not context.allows(card):
        why = f"does not serve {asked.path()}"
    else:
        return
    raise BadGolden(
        repr(question[:80]),
        f"{card.id} {why}: no search there finds it",
        hint="expect active memories that hold where the question is asked; memory-pipeline cards list shows them",
    )


def _stored(row: golden.GoldenRow) -> StoredGolden:
    return StoredGolden(
        number=row.golden_id,
        question=row.question,
        place=Dependency(database=row.database, schema_=row.schema),
        expected=tuple(row.expected),
        added_at=row.added_at,
        added_by=row.added_by,
    )


def _question(where: str, row: Any) -> GoldenQuestion:
    try:
        return GoldenQuestion.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "question"
        raise BadGolden(where, f"{field}: {first['msg']}") from error
    except MemoryPipelineError as error:
        raise BadGolden(where, error.message) from error


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Every row of a file, with its place for errors."""
    try:
        text = read_file(file, longest=_LONGEST)
    except (OSError, ValueError) as error:
        raise BadGolden(str(file), f"it cannot be read: {error}") from error
    if file.suffix.lower() == ".jsonl":
        for number, line in enumerate(text.split("\n"), start=1):  # a text of JSON may hold what else ends a line
            if line.strip():
                yield f"{file}:{number}", _json(f"{file}:{number}", line)
        return
    try:
        rows = read_yaml(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadGolden(str(file), f"it is not YAML: {error}") from error
    if not isinstance(rows, list):
        raise BadGolden(str(file), "it is not a list of questions")
    yield from ((f"{file}: question {number}", row) for number, row in enumerate(rows, start=1))


def _json(where: str, line: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=without_repetition)
    except (ValueError, RecursionError) as error:
        raise BadGolden(where, f"it is not JSON: {error}") from error
