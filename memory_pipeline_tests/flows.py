"""Short ways through the main path, on the real stack."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.operations.decide import Decision, decide
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.recall import Recall, SearchRequest, recall
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role

TS = "2026-01-15T09:00:00Z"

ABLATION = {"subject": "ablazione", "detail": "procedura con ablazione_transcatetere = TRUE, contata per anno"}
READMISSION = {"subject": "riammissione", "detail": "nuovo ricovero entro 30 giorni dalla dimissione precedente"}
MORTALITY = {"subject": "mortalità", "detail": "decesso del paziente prima della dimissione dal reparto"}


def line(type_: str = "concept_clarified", **fields: Any) -> bytes:
    """One line for `append`, in phase F1."""
    return json.dumps({"ts": TS, "type": type_, "phase": "F1", **fields}, ensure_ascii=False).encode()


def promote(services: Services, workspace: str, concepts: Iterable[Mapping[str, Any]], session: str = "s1") -> Decision:
    """Clarify concepts in a session and promote every candidate that it then has."""
    append(services, workspace, session, [line(**concept) for concept in concepts])
    offered = preview(services, workspace, session, limit=1000)
    assert offered.preview_id is not None
    return decide(
        services,
        workspace,
        offered.preview_id,
        selected=[offer.candidate.seq for offer in offered.candidates],
        declined=[],
    )


def ask(services: Services, workspace: str, question: str, **request: Any) -> Recall:
    """Search in the default place of a test workspace."""
    fields = {"place": Dependency(database="cardio", schema_="public"), **request}
    return recall(services, SearchRequest(workspace=workspace, question=question, **fields))


def found(answer: Recall) -> list[str]:
    """Ids of the cards proposed, best first."""
    return [proposal.card.id for proposal in answer.proposals]


def revise(services: Services, workspace: str, card_id: str, **columns: Any) -> None:
    """Change a card as the reviewer, by SQL: the trigger queues it."""
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    with services.database.transaction(Role.REVIEWER, workspace) as tx:
        tx.execute(
            f"UPDATE cards SET {assignments}, revision = revision + 1, updated_by = session_user"  # noqa: S608
            " WHERE workspace = %(workspace)s AND card_id = %(card_id)s",
            {**columns, "workspace": workspace, "card_id": card_id},
        )


def with_settings(services: Services, **changes: Any) -> Services:
    """The same stack with some settings changed; the caller closes it."""
    settings = services.settings
    known = {name: getattr(settings, name) for name in Settings.model_fields}
    return replace(services, settings=Settings(**{**known, **changes}))


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
