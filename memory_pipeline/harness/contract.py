"""The JSON contract: one model per answer, the same for every door.

An answer is the use case's result with the contract's version and a status. The JSON Schema of all answers is published
in `docs/contract.schema.json`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.json_schema import models_json_schema

from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.core.summary import SessionSummary
from memory_pipeline.core.workspace import Workspace, WorkspaceStatus
from memory_pipeline.operations.audit import Audit
from memory_pipeline.operations.cards import CardList, ShownCard
from memory_pipeline.operations.close import ClosedSession
from memory_pipeline.operations.consistency import DriftReport
from memory_pipeline.operations.curate import Curated
from memory_pipeline.operations.decide import Decision
from memory_pipeline.operations.doctor import Finding
from memory_pipeline.operations.evaluate import Evaluation
from memory_pipeline.operations.golden import GoldenAdded, GoldenList
from memory_pipeline.operations.inbox import InboxProblem, InboxRead
from memory_pipeline.operations.index import IndexReport
from memory_pipeline.operations.ledger import Appended, Exported, Ledger, Quarantine, SourceReset
from memory_pipeline.operations.outbox import Outbox, Retried
from memory_pipeline.operations.preview import Preview
from memory_pipeline.operations.propagate import DrainReport, Problem
from memory_pipeline.operations.quality import AcceptedQuality
from memory_pipeline.operations.rebuild import RebuildReport
from memory_pipeline.operations.recall import Recall
from memory_pipeline.operations.reconcile import ReconcileReport
from memory_pipeline.operations.registry import RegistryFile
from memory_pipeline.operations.registry_import import ImportReport
from memory_pipeline.operations.repairs import RepairList
from memory_pipeline.operations.workspaces import ChangedWorkspace

VERSION = 1
"""Of the contract. It changes when an answer loses a field or a field its meaning."""


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


Escaped = Annotated[str, BeforeValidator(_escaped)]
"""What may name a path, whose bytes may be no UTF-8: JSON holds them as escapes alone."""


class Answer(BaseModel):
    """What every answer has."""

    # A field with a default is in every answer all the same: the schema may count on it.
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    contract: Literal[1] = 1


class WorkspaceAnswer(Answer):
    """`workspace create`, `workspace show`."""

    status: Literal["created", "exists", "ok"]
    workspace: Workspace


class WorkspaceChangeAnswer(Answer, ChangedWorkspace):
    """`workspace set`, `workspace retire`, `workspace restore`."""

    status: Literal["changed", "unchanged"]


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


class ExportAnswer(Answer, Exported):
    """`ledger export` into a file."""

    status: Literal["ok"] = "ok"
    file: Escaped


class ResetAnswer(Answer, SourceReset):
    """`ledger reset-source`."""

    status: Literal["reset"] = "reset"


class QuarantineAnswer(Answer, Quarantine):
    """`ledger quarantine`: a page of the lines, and how many there are."""

    status: Literal["ok"] = "ok"


class PreviewAnswer(Answer, Preview):
    """`promote preview`."""

    status: Literal["ok", "nothing_to_decide"]


class Propagated(StrEnum):
    """Whether the index has followed a change already. A pending one follows with the next change, with `index`, or
    by the sensor where Dagster runs.
    """

    CURRENT = "current"
    PENDING = "pending"


class DecideAnswer(Answer, Decision):
    """`promote decide`, `promote save-one`."""

    status: Literal["decided"] = "decided"
    propagation: Propagated
    propagation_problem: Problem | None = None


class SessionAnswer(Answer, SessionSummary):
    """`session show`."""

    status: Literal["ok"] = "ok"


class CloseAnswer(Answer, ClosedSession):
    """`session close`."""

    status: Literal["closed"] = "closed"


class SearchAnswer(Answer, Recall):
    """`search`."""

    status: Literal["ok", "degraded"]


class IndexAnswer(Answer, IndexReport):
    """`index`. Incomplete where cards or a server failed: what failed waits and is tried again."""

    status: Literal["ok", "incomplete"]


class RebuildAnswer(Answer, RebuildReport):
    """`index --rebuild`. Incomplete where cards wait after the switch, or the alias has not followed yet."""

    status: Literal["ok", "incomplete"]


class OutboxAnswer(Answer, Outbox):
    """`propagation list`."""

    status: Literal["ok"] = "ok"


class RetryAnswer(Answer, Retried):
    """`propagation retry`. Incomplete where something still waits."""

    status: Literal["ok", "incomplete"]


class CardListAnswer(Answer, CardList):
    """`cards list`."""

    status: Literal["ok"] = "ok"


class CardAnswer(Answer, ShownCard):
    """`cards show`. Without `--history` there is none."""

    status: Literal["ok"] = "ok"


class CurateAnswer(Answer, Curated):
    """`cards add`, `edit`, `delete`, `set-kind`, `link`, `unlink`. Unchanged where the card was so already."""

    status: Literal["changed", "unchanged"]
    propagation: Propagated
    propagation_problem: Problem | None = None


class ConsistencyAnswer(Answer, DriftReport):
    """`consistency`. Counts are of every finding, of which some are shown."""

    status: Literal["consistent", "drift"]


class ReconcileAnswer(Answer, ReconcileReport):
    """`reconcile`. Incomplete where something still waits, or stays since it was not certain to be wrong."""

    status: Literal["dry_run", "ok", "incomplete"]


class RepairListAnswer(Answer, RepairList):
    """`repairs list`."""

    status: Literal["ok"] = "ok"


class RegistryExportAnswer(Answer, RegistryFile):
    """`registry export`."""

    status: Literal["ok"] = "ok"
    file: Escaped


class RegistryImportAnswer(Answer, ImportReport):
    """`registry import`. A dry run writes nothing; what it prints as `expect` applies it. Else as `decide`."""

    status: Literal["dry_run", "applied"]
    file: Escaped
    propagation: Propagated | None = None
    propagation_problem: Problem | None = None


class AuditAnswer(Answer, Audit):
    """`audit`."""

    status: Literal["ok"] = "ok"


class EvaluateAnswer(Answer, Evaluation):
    """`evaluate`."""

    status: Literal["ok"] = "ok"


class GoldenAddAnswer(Answer, GoldenAdded):
    """`golden add`, `golden import`."""

    status: Literal["ok"] = "ok"


class GoldenListAnswer(Answer, GoldenList):
    """`golden list`."""

    status: Literal["ok"] = "ok"


class GoldenAcceptAnswer(Answer, AcceptedQuality):
    """`golden accept`."""

    status: Literal["accepted"] = "accepted"


class DoctorAnswer(Answer):
    """`doctor`. The status is the worst state of any finding; `exit_code` that of the first one that is ill."""

    status: Literal["well", "warning", "unknown", "ill"]
    exit_code: int
    findings: tuple[Finding, ...]


class ErrorAnswer(Answer):
    """Any command that failed. `error` is the name of the error, `exit_code` that of its family."""

    status: Literal["error"] = "error"
    error: str
    message: Escaped
    hint: Escaped
    exit_code: int


ANSWERS: tuple[type[Answer], ...] = (
    WorkspaceAnswer,
    WorkspaceChangeAnswer,
    WorkspaceListAnswer,
    AppendAnswer,
    IngestAnswer,
    LedgerAnswer,
    ExportAnswer,
    ResetAnswer,
    QuarantineAnswer,
    PreviewAnswer,
    DecideAnswer,
    CloseAnswer,
    SessionAnswer,
    SearchAnswer,
    IndexAnswer,
    RebuildAnswer,
    OutboxAnswer,
    RetryAnswer,
    CardListAnswer,
    CardAnswer,
    CurateAnswer,
    ConsistencyAnswer,
    ReconcileAnswer,
    RepairListAnswer,
    RegistryExportAnswer,
    RegistryImportAnswer,
    AuditAnswer,
    EvaluateAnswer,
    GoldenAddAnswer,
    GoldenListAnswer,
    GoldenAcceptAnswer,
    DoctorAnswer,
    ErrorAnswer,
)


def error_answer(error: MemoryPipelineError) -> ErrorAnswer:
    """Tell an error in the contract's words."""
    return ErrorAnswer(error=error.name, message=error.message, hint=error.hint, exit_code=error.exit_code)


def decide_answer(decision: Decision, drained: DrainReport) -> DecideAnswer:
    """Tell a decision, and whether it can be searched already."""
    return DecideAnswer(**dict(decision), **_followed(drained))


def curate_answer(curated: Curated, drained: DrainReport) -> CurateAnswer:
    """Tell a change of a card, and whether the index has followed it already."""
    return CurateAnswer(status="changed" if curated.changed else "unchanged", **dict(curated), **_followed(drained))


def import_answer(report: ImportReport, drained: DrainReport | None) -> RegistryImportAnswer:
    """Tell an import that was applied and propagated, or, without a drain, its dry run."""
    if drained is None:
        return RegistryImportAnswer(status="dry_run", **dict(report))
    return RegistryImportAnswer(status="applied", **dict(report), **_followed(drained))


def _followed(drained: DrainReport) -> dict[str, Any]:
    if drained.settled:
        return {"propagation": Propagated.CURRENT}
    return {"propagation": Propagated.PENDING, "propagation_problem": drained.problem}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an answer, as it is serialised: it is any of those that it defines by name."""
    _, schema = models_json_schema(
        [(answer, "serialization") for answer in ANSWERS],
        title="memory_pipeline contract",
        description=f"Answers of the JSON contract, version {VERSION}.",
    )
    return {**schema, "anyOf": [{"$ref": f"#/$defs/{answer.__name__}"} for answer in ANSWERS]}


if __name__ == "__main__":
    import json
    import sys

    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")
