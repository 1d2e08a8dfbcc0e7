"""`consistency`, `reconcile` and `repairs` as a person and a program see them."""

from __future__ import annotations

import pytest

from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, READMISSION, promote
from memory_pipeline_tests.harness.test_cli import answer
from memory_pipeline_tests.operations.sessions import retraction, tell


@pytest.fixture
def drifted(services: Services, workspace: Workspace) -> str:
    """A workspace whose mem-0001 has lost its point, and whose mem-0002 has lost its decision."""
    promote(services, workspace.slug, [ABLATION, READMISSION])
    assert drain(services, workspace.slug).settled
    services.index.delete(f"memory__{workspace.slug}__1", [point_id("mem-0001")])
    tell(services, workspace.slug, retraction(2))
    return workspace.slug


def test_drift_is_told_mended_and_proposed(cli: Cli, drifted: str) -> None:
    found = answer(cli("consistency", "-w", drifted, "--json"), 51)
    dry = answer(cli("reconcile", "-w", drifted, "--dry-run", "--json"))
    mended = answer(cli("reconcile", "-w", drifted, "--json"))
    after = answer(cli("consistency", "-w", drifted, "--json"))
    proposed = answer(cli("repairs", "list", "-w", drifted, "--json"))

    assert (found["status"], found["counts"]) == ("drift", {"missing": 1, "unsupported_card": 1})
    assert {one["kind"]: one["card_id"] for one in found["findings"]} == {
        "missing": "mem-0001",
        "unsupported_card": "mem-0002",
    }
    assert (dry["status"], dry["found"]["counts"], dry["drain"]) == ("dry_run", found["counts"], None)
    assert (mended["status"], mended["queued"], mended["proposals"]["opened"]) == ("ok", 1, 1)
    assert (after["status"], after["counts"], after["proposed"]) == ("consistent", {}, 1)
    assert [(one["card_id"], one["state"], one["repair"]) for one in proposed["proposals"]] == [
        ("mem-0002", "open", "delete_card")
    ]


def test_a_person_reads_what_where_and_what_to_do(cli: Cli, drifted: str) -> None:
    found = cli("consistency", "-w", drifted)
    mended = cli("reconcile", "-w", drifted)
    proposed = cli("repairs", "list", "-w", drifted, "--all")
    after = cli("consistency", "-w", drifted)

    assert found.returncode == 51
    for told in ("missing: 1", "mem-0001", "no point", "mem-0002", "s1:seq:2", "2 cards, 1 point, 2 differences"):
        assert told in found.stdout
    assert "memory-pipeline reconcile" in found.stderr
    assert (mended.returncode, "1 card queued, 0 points deleted" in mended.stdout) == (0, True)
    assert "1 proposed" in mended.stdout
    for told in ("unsupported_card", "mem-0002", "s1:seq:2 is retracted", "delete_card"):
        assert told in proposed.stdout
    assert (after.returncode, "0 differences" in after.stdout, "1 before a human" in after.stdout) == (0, True, True)


def test_a_repair_that_cannot_be_finished_is_told(cli: Cli, drifted: str, services: Services) -> None:
    promote(services, drifted, [{"subject": "degenza", "detail": "giorni di ricovero"}], session="s2")

    stopped = cli("reconcile", "-w", drifted, "--json", MEMORY_OLLAMA_URL="http://127.0.0.1:9")

    told = answer(stopped, 50)
    assert (told["status"], told["drain"]["problem"]["error"], told["queued"]) == (
        "incomplete",
        "EmbedderUnavailable",
        1,
    )
    assert answer(cli("reconcile", "-w", drifted, "--json"))["status"] == "ok"
