"""The sample that travels with the package: two invented workspaces, their sessions, and what must come of them.

`cardiologia` is a small clinical database in Italian; `commesse` holds job orders over several fiscal years, with texts
in Italian and English. `<workspace>/<session>.jsonl` is a ledger as a session would leave it in the inbox and
`<workspace>/runtime.yaml` what such a session runs on. `plan.yaml` says what the reviewer decides, `questions.yaml`
what a search must then find. `golden/` is a corpus for `evaluate`: the concepts of the plan, and questions on them
in two languages. No person, place or figure in it is real.

Broken on purpose, so that quarantine has something to show:

- `cardiologia/2025-09-15-ablazioni-per-anno.jsonl`: line 13 is cut off in the middle of a string;
  seq 18 is of an unknown type, `join_path_chosen`: stored, without effect;
- `commesse/2025-09-22-confronto-esercizi.jsonl`: line 12 holds `NaN`, which is not JSON;
  seq 14 is of the same unknown type.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from memory_pipeline.core.workspace import Workspace

_FOLDER = files(__name__)
_Row = TypeVar("_Row", bound=BaseModel)


class LeftOut(BaseModel):
    """A clarified concept that the preview must not offer, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    subject: str
    reason: Literal["table name", "retracted", "rolled back", "folded"]


class SessionPlan(BaseModel):
    """What the reviewer decides in one session. Selected, declined and left out cover all its clarified concepts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str
    session: str
    selected: tuple[str, ...]
    declined: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warned: tuple[str, ...] = Field(default=(), description="offered, but not preselected")
    quarantined_lines: tuple[int, ...] = Field(default=(), description="counted from 1")
    inert: tuple[int, ...] = Field(default=(), description="seqs of an unknown type")


class QuestionFilters(BaseModel):
    """How a question narrows the context of its workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str | None = None
    scope: tuple[str, ...] = ()


class SampleQuestion(BaseModel):
    """A question and the subjects that must, and must not, answer it once the whole plan has been decided."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str
    language: Literal["it", "en"]
    question: str
    filters: QuestionFilters = QuestionFilters()
    expects: tuple[str, ...] = Field(min_length=1, description="all among the first three")
    never: tuple[str, ...] = Field(description="at no rank")


def workspaces() -> tuple[Workspace, ...]:
    """The workspaces to create before anything else."""
    return _rows("workspaces.yaml", Workspace)


def plan() -> tuple[SessionPlan, ...]:
    """Every session of the sample, in the order in which it is reviewed."""
    return _rows("plan.yaml", SessionPlan)


def questions() -> tuple[SampleQuestion, ...]:
    """The questions to ask after the last decision."""
    return _rows("questions.yaml", SampleQuestion)


def ledger(workspace: str, session: str) -> bytes:
    """A session's ledger as it is dropped into the inbox: JSON lines, each ended by a newline."""
    return _FOLDER.joinpath(workspace, f"{session}.jsonl").read_bytes()


def runtime(workspace: str) -> str:
    """The runtime file of a workspace, as text."""
    return _FOLDER.joinpath(workspace, "runtime.yaml").read_text(encoding="utf-8")


def golden_corpus() -> Path:
    """The folder of the golden set, for `evaluate`."""
    return Path(str(_FOLDER.joinpath("golden")))


def _rows(name: str, model: type[_Row]) -> tuple[_Row, ...]:
    document = yaml.safe_load(_FOLDER.joinpath(name).read_text(encoding="utf-8"))
    return TypeAdapter(tuple[model, ...]).validate_python(document)  # type: ignore[valid-type]
