"""`propagation` and `index --rebuild` as a person calls them."""

from __future__ import annotations

import json

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.harness.contract import OutboxAnswer, RebuildAnswer, RetryAnswer
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.embedding.scripted_ollama import DIMENSIONS, serve
from memory_pipeline_tests.flows import ABLATION, READMISSION, closed_port, promote


def test_what_waits_is_listed_tried_again_and_rebuilt(cli: Cli, services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    with serve() as server:
        variables = {"MEMORY_OLLAMA_URL": server.url, "MEMORY_EMBEDDING_MODEL": "tiny"}
        server.fault = lambda texts: (200, {"model": "tiny", "embeddings": [[0.0] * DIMENSIONS for _ in texts]})
        promote(services, slug, [ABLATION, READMISSION])

        tried = cli("propagation", "retry", "-w", slug, "--json", **variables)
        assert tried.returncode == 50, tried.stderr
        retried = RetryAnswer.model_validate_json(tried.stdout)
        assert (retried.status, retried.retried, retried.drain.pending) == ("incomplete", 2, 2)

        listed = OutboxAnswer.model_validate_json(cli("propagation", "list", "-w", slug, "--json").stdout)
        assert [(row.card_id, row.state, row.attempts) for row in listed.rows] == [
            ("mem-0001", "pending", 1),
            ("mem-0002", "pending", 1),
        ]
        shown = cli("propagation", "list", "-w", slug, "--limit", "1")
        assert f"{slug}: 2 cards pending, 0 parked" in shown.stdout
        assert "UselessVector" in shown.stdout
        assert "mem-0002" not in shown.stdout

        server.fault = lambda _: None
        healed = cli("propagation", "retry", "-w", slug, "--card", "mem-0001", **variables)
        assert healed.returncode in (0, 50), healed.stderr
        assert "1 card made due" in healed.stdout
        assert cli("propagation", "retry", "-w", slug, **variables).returncode == 0

        rebuilt = cli("index", "-w", slug, "--rebuild", "--json", **variables)
        assert rebuilt.returncode == 0, rebuilt.stderr
        report = RebuildAnswer.model_validate_json(rebuilt.stdout)
        assert (report.status, report.collection, report.cards) == ("ok", f"memory__{slug}__2", 2)
        told = cli("index", "-w", slug, "--rebuild", **variables)
        assert f"memory__{slug}__3 serves now, with 2 cards: 2 written, 0 embedded" in told.stdout

    told = cli("index", "-w", slug, MEMORY_OLLAMA_URL=f"http://127.0.0.1:{closed_port()}")
    assert "whether a rebuild is due cannot be told: " in told.stderr
    assert "--rebuild" not in told.stderr
    unknown = cli("propagation", "retry", "-w", slug, "--card", "mem-0099", "--json")
    assert (unknown.returncode, json.loads(unknown.stdout)["error"]) == (11, "UnknownCard")
