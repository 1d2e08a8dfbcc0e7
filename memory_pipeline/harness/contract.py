"""The JSON contract: one model per answer, the same for every door.

An answer is the use case's result with the contract's version and a status. The JSON Schema of all answers is published
in `docs/contract.schema.json`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.core.workspace import Workspace, WorkspaceStatus
from memory_pipeline.operations.decide import Decision
from memory_pipeline.operations.index import IndexReport
from memory_pipeline.operations.ledger import Appended, InboxProblem, InboxRead, Ledger
from memory_pipeline.operations.preview import Preview
from memory_pipeline.operations.propagate import DrainReport, Problem
from memory_pipeline.operations.recall import Recall

VERSION = 1
"""Of the contract. It changes when an answer loses a field or a field its meaning."""


class Answer(BaseModel):
    """What every answer has."""

    model_config = ConfigDict(frozen=True)

    contract: Literal[1] = 1


class WorkspaceAnswer(Answer):
    """`workspace create`, `workspace show`."""

    status: Literal["created", "exists", "ok"]
    workspace: Workspace


class ListedWorkspace(BaseModel):
    """A line of `workspace list`."""

    model_config = ConfigDict(frozen=True)

    slug: str
    status: WorkspaceStatus


class WorkspaceListAnswer(Answer):
    """`workspace list`."""

    status: Literal["ok"] = "ok"
    workspaces: tuple[ListedWorkspace, ...]


class AppendAnswer(Answer, Appended):
    """`ledger append`. Refused lines were not stored; the others were."""

    status: Literal["ok", "some_refused"]


class IngestAnswer(Answer):
    """`ledger read`: every file of a workspace's inbox."""

    status: Literal["ok", "some_refused"]
    workspace: str
    readings: tuple[InboxRead, ...]
    problems: tuple[InboxProblem, ...]


class LedgerAnswer(Answer, Ledger):
    """`ledger show`."""

    status: Literal["ok"] = "ok"


class PreviewAnswer(Answer, Preview):
    """`promote preview`."""

    status: Literal["ok", "nothing_to_decide"]


class Propagated(StrEnum):
    """Whether the index has followed a decision already. Pending ones follow without anyone asking."""

    CURRENT = "current"
    PENDING = "pending"


class DecideAnswer(Answer, Decision):
    """`promote decide`, `promote save-one`."""

    status: Literal["decided"] = "decided"
    propagation: Propagated
    propagation_problem: Problem | None = None


class SearchAnswer(Answer, Recall):
    """`search`."""

    status: Literal["ok", "degraded"]


class IndexAnswer(Answer, IndexReport):
    """`index`. Incomplete where cards or a server failed: what failed waits and is tried again."""

    status: Literal["ok", "incomplete"]


class ErrorAnswer(Answer):
    """Any command that failed. `error` is the name of the error, `exit_code` that of its family."""

    status: Literal["error"] = "error"
    error: str
    message: str
    hint: str
    exit_code: int


ANSWERS: tuple[type[Answer], ...] = (
    WorkspaceAnswer,
    WorkspaceListAnswer,
    AppendAnswer,
    IngestAnswer,
    LedgerAnswer,
    PreviewAnswer,
    DecideAnswer,
    SearchAnswer,
    IndexAnswer,
    ErrorAnswer,
)


def error_answer(error: MemoryPipelineError) -> ErrorAnswer:
    """Tell an error in the contract's words."""
    return ErrorAnswer(error=error.name, message=error.message, hint=error.hint, exit_code=error.exit_code)


def decide_answer(decision: Decision, drained: DrainReport) -> DecideAnswer:
    """Tell a decision, and whether it can be searched already."""
    current = drained.settled
    return DecideAnswer(
        **dict(decision),
        propagation=Propagated.CURRENT if current else Propagated.PENDING,
        propagation_problem=None if current else drained.problem,
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema of every answer, by name, as it is serialised."""
    _, schema = models_json_schema(
        [(answer, "serialization") for answer in ANSWERS],
        title="memory_pipeline contract",
        description=f"Answers of the JSON contract, version {VERSION}.",
    )
    return schema


if __name__ == "__main__":
    import json
    import sys

    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")
