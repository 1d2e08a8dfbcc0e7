"""Curation, registry files and the audit, by commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.registry_import import BATCH
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, READMISSION, closed_port, promote
from memory_pipeline_tests.harness.test_cli import answer
from memory_pipeline_tests.operations.sessions import rows
from memory_pipeline_tests.operations.test_registry import record, write


@pytest.fixture
def two(services: Services, workspace: Workspace) -> list[str]:
    """The options that name a workspace with two memories, indexed."""
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)
    return ["-w", workspace.slug, "--json"]


def test_a_card_is_curated_by_commands(cli: Cli, two: list[str]) -> None:
    def cards(*arguments: str, code: int = 0) -> dict[str, Any]:
        return answer(cli("cards", *arguments, *two), code)

    edited = cards("edit", "mem-0001", "--revision", "1", "--detail", "seduta di emodialisi", "--concept", "dialisi",
                   "--dependency", "{database: cardio, table: t}")  # fmt: skip
    assert (edited["status"], edited["changed"], edited["propagation"]) == ("changed", True, "current")
    found = answer(cli("search", "emodialisi", *two))
    assert found["proposals"][0]["card"]["id"] == "mem-0001"
    stale = cards("edit", "mem-0001", "--revision", "1", "--detail", "x", code=12)
    assert stale["error"] == "StaleRevision"
    assert "revision 2" in str(stale["message"])
    cleared = cards("edit", "mem-0001", "--revision", "2", "--clear", "concepts", "--clear", "dependencies")
    assert (cleared["card"]["concepts"], cleared["card"]["dependencies"]) == ([], [])
    link = ["mem-0001", "mem-0002", "--relation", "requires"]
    assert cards("link", *link, "--revision", "3")["status"] == "changed"
    assert cards("link", *link, "--revision", "3")["status"] == "unchanged"
    assert cards("unlink", *link, "--revision", "4")["status"] == "changed"
    assert cards("set-kind", "mem-0001", "exemplar", "--revision", "5")["card"]["kind"] == "exemplar"
    assert cards("delete", "mem-0001", "--revision", "6")["card"]["status"] == "deleted"
    assert cards("delete", "mem-0001", "--revision", "7", code=12)["error"] == "CardDeleted"
    added = cards("add", "--subject", "dialisi", "--detail", "seduta di emodialisi")
    assert added["card"]["id"] == "mem-0003"
    assert [card["id"] for card in cards("list")["cards"]] == ["mem-0002", "mem-0003"]
    shown = cards("show", "mem-0001", "--history")
    assert [(item["revision"], [c["field"] for c in item["changes"]]) for item in shown["history"]] == [
        (1, []),
        (2, ["detail", "concepts", "dependencies"]),
        (3, ["concepts", "dependencies"]),
        (4, ["links"]),
        (5, ["links"]),
        (6, ["kind", "type"]),
        (7, ["status"]),
    ]
    assert {item["via"] for item in shown["history"][1:]} == {"cli"}
    acts = answer(cli("audit", "--card", "mem-0001", *two))
    assert [event["action"] for event in acts["events"]] == [
        "promoted", "edited", "edited", "linked", "unlinked", "kind_changed", "deleted",
    ]  # fmt: skip


def test_what_people_see_says_the_same(cli: Cli, two: list[str]) -> None:
    workspace = two[:2]
    edited = cli("cards", "edit", "mem-0001", "--revision", "1", "--detail", "a\x1b[31mb", *workspace)
    assert edited.stdout.splitlines() == ["mem-0001: changed, memory, active, revision 2", "index: current"]
    shown = cli("cards", "show", "mem-0001", "--history", *workspace).stdout
    assert "\x1b[31m" not in shown
    assert "memory_reviewer via cli" in shown
    assert re.search(r"updated_at\W+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", shown)
    assert "repairs proposed in " in (none := cli("repairs", "list", *workspace).stdout)
    assert none.rstrip().endswith(": 0")
    assert f"- {ABLATION['detail']}" in shown
    assert "+ a\\u001b[31mb" in shown
    assert "mem-0002" in cli("cards", "list", "--text", "ricovero", *workspace).stdout
    assert "promoted" in cli("audit", *workspace).stdout
    assert "promoted" not in cli("audit", "--since", "2126-01-01", *workspace).stdout


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (["cards", "show", "mem-0009"], "UnknownCard", 11),
        (["cards", "delete", "nonsense", "--revision", "1"], "UnknownCard", 11),
        (["cards", "add", "--subject", "x"], "BadCard", 10),
        (["cards", "add", "--subject", "fact_x", "--detail", "x"], "NotAConcept", 13),
        (["cards", "add", "--subject", "x", "--detail", "x", "--kind", "evidence"], "EvidenceNotCurated", 13),
        (["cards", "add", "--subject", "x", "--detail", "x", "--dependency", "{column: c}"], "BadCard", 10),
        (["cards", "add", "--subject", "x", "--detail", "x", "--dependency", "{a"], "BadCard", 10),
        (["cards", "link", "mem-0001", "mem-0001", "--relation", "related", "--revision", "1"], "SelfLink", 10),
        (["registry", "export", "--output", "none/r.jsonl"], "BadInput", 10),
        (["registry", "import", "none.jsonl"], "BadRegistryFile", 10),
        (["audit", "--limit", "0"], "BadInput", 10),
    ],
)
def test_what_cannot_be_is_one_named_error(
    cli: Cli, workspace: Workspace, arguments: list[str], error: str, code: int
) -> None:
    assert answer(cli(*arguments, "-w", workspace.slug, "--json"), code)["error"] == error


def test_wrong_usage(cli: Cli, workspace: Workspace) -> None:
    for arguments in (
        ["cards", "delete", "mem-0001"],
        ["cards", "edit", "mem-0001", "--revision", "1", "--scope", "x", "--clear", "scope"],
        ["registry", "import", "r.jsonl", "--apply"],
        ["registry", "import", "r.jsonl", "--expect", "x"],
        ["audit", "--since", "yesterday"],
    ):
        assert cli(*arguments, "-w", workspace.slug).returncode == 2


def test_a_change_is_pending_where_qdrant_is_down(cli: Cli, two: list[str]) -> None:
    down = {"MEMORY_QDRANT_URL": f"http://127.0.0.1:{closed_port()}"}

    deleted = answer(cli("cards", "delete", "mem-0001", "--revision", "1", *two, **down))

    assert (deleted["status"], deleted["propagation"]) == ("changed", "pending")
    assert deleted["propagation_problem"]["error"] == "IndexUnavailable"


def test_only_who_has_the_reviewers_secret_changes_cards(
    cli: Cli, two: list[str], settings: Settings, tmp_path: Path
) -> None:
    """A machine that only searches has the reader's secret: it can look, and nothing else."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("memory_reader", "memory_harness"):
        (secrets / name).write_text((settings.secrets / name).read_text())
    own = {"MEMORY_SECRETS_DIR": str(secrets)}
    file = write(tmp_path / "r.jsonl", record(1))

    assert len(answer(cli("cards", "list", *two, **own))["cards"]) == 2
    for arguments in (
        ["cards", "delete", "mem-0001", "--revision", "1"],
        ["cards", "show", "mem-0001", "--history"],
        ["registry", "import", str(file)],
        ["audit"],
    ):
        assert answer(cli(*arguments, *two, **own), 20)["error"] == "MissingSecret"


def test_a_registry_goes_out_and_comes_in(cli: Cli, two: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file in (first, second):
        assert answer(cli("registry", "export", "--output", str(file), *two))["cards"] == 2
    assert first.read_bytes() == second.read_bytes()
    write(first, record(1), record(2, type="table_promoted"))

    dry = answer(cli("registry", "import", str(first), *two))
    assert (dry["status"], dry["propagation"]) == ("dry_run", None)
    assert dry["counts"] == {"created": 1, "provenance_added": 0, "known": 0}
    assert [bad["reason"] for bad in dry["quarantined"]] == ["not_reusable"]
    wrong = answer(cli("registry", "import", str(first), "--apply", "--expect", "0" * 32, *two), 12)
    assert wrong["error"] == "ImportChanged"
    done = answer(cli("registry", "import", str(first), "--apply", "--expect", dry["expect"], *two))
    assert (done["status"], done["propagation"], done["records"][0]["card_id"]) == ("applied", "current", "mem-0003")
    assert "nothing was written" in cli("registry", "import", str(second), *two[:2]).stdout


def test_an_import_killed_between_its_batches_goes_on(
    cli: Cli, services: Services, workspace: Workspace, environment: dict[str, str], tmp_path: Path
) -> None:
    file = write(tmp_path / "r.jsonl", *(record(number) for number in range(1, BATCH * 3)))
    options = ["-w", workspace.slug, "--json"]
    token = answer(cli("registry", "import", str(file), *options))["expect"]
    command = ["registry", "import", str(file), "--apply", "--expect", token]
    with subprocess.Popen(
        [sys.executable, "-m", "memory_pipeline", *command, *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "settled" in process.stderr.readline()
        process.kill()
    ((before,),) = rows(services, workspace.slug, "SELECT count(*) FROM cards")
    assert BATCH <= before < BATCH * 3
    assert before % BATCH == 0

    # The index may wait: it is not what is tried here.
    down = {"MEMORY_QDRANT_URL": f"http://127.0.0.1:{closed_port()}"}
    done = answer(cli(*command, *options, **down))

    assert [line["card_id"] for line in done["records"]] == [f"mem-{number:04d}" for number in range(1, BATCH * 3)]
    assert rows(services, workspace.slug, "SELECT count(*) AS a, count(DISTINCT card_id) AS b FROM card_sources") == [
        (BATCH * 3 - 1, BATCH * 3 - 1)
    ]
