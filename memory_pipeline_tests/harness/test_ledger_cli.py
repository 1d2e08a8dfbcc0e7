"""The commands of the ledger as a person and a harness meet them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION
from memory_pipeline_tests.flows import line as draft
from memory_pipeline_tests.harness.test_cli import answer
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import drop, rows


def test_a_session_is_exported_to_a_file_and_to_a_pipe_alike(cli: Cli, workspace: Workspace, tmp_path: Path) -> None:
    where = ["-w", workspace.slug, "-s", "s1"]
    cli("ledger", "append", *where, stdin=draft(**ABLATION, other="attività").decode())
    told = answer(cli("ledger", "export", *where, "-o", "out.jsonl", "--json"))
    assert (told["harness"], told["pipeline"], told["file"]) == (1, 0, "out.jsonl")
    piped = cli("ledger", "export", *where)
    assert (piped.returncode, piped.stderr) == (0, "")
    assert piped.stdout == (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert json.loads(piped.stdout)["other"] == "attività"


def test_whoever_reads_a_pipe_may_have_read_enough(cli: Cli, workspace: Workspace, environment: dict[str, str]) -> None:
    lines = "\n".join(draft(subject=f"a{number}", detail="x" * 500).decode() for number in range(1000))
    cli("ledger", "append", "-w", workspace.slug, "-s", "s1", stdin=lines)
    command = [sys.executable, "-m", "memory_pipeline", "ledger", "export", "-w", workspace.slug, "-s", "s1"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["seq"] == 1
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (0, b"")


def test_an_export_that_fails_is_one_named_error_and_leaves_no_file(
    cli: Cli, workspace: Workspace, tmp_path: Path
) -> None:
    where = ["-w", workspace.slug, "-s", "none", "--json"]
    assert answer(cli("ledger", "export", *where, "-o", "out.jsonl"), 11)["error"] == "UnknownSession"
    assert answer(cli("ledger", "export", *where, "-o", "no/such/folder"), 10)["error"] == "BadInput"
    assert list(tmp_path.iterdir()) == []
    assert cli("ledger", "export", *where).returncode == 2  # of what would the JSON tell?


def test_a_changed_file_is_refused_reset_and_read_on(cli: Cli, workspace: Workspace, services: Services) -> None:
    where = ["-w", workspace.slug, "--json"]
    file = drop(services, workspace.slug, line(seq=1), line(seq=2))
    assert answer(cli("ledger", "read", *where))["readings"][0]["last_seq"] == 2
    file.write_bytes(line(seq=2, subject="altro") + b"\n" + line(seq=3) + b"\n")
    refused = answer(cli("ledger", "read", *where), 10)
    assert [problem["error"] for problem in refused["problems"]] == ["LedgerTampered"]
    assert "reset-source" in refused["problems"][0]["hint"]
    assert cli("ledger", "reset-source", *where, "-s", "s1").returncode == 2
    done = answer(cli("ledger", "reset-source", *where, "-s", "s1", "--reason", "riscritto a mano"))
    assert (done["status"], done["reset"]["floor_seq"], done["reset"]["reset_by"]) == ("reset", 2, "memory_owner")
    (reading,) = answer(cli("ledger", "read", *where))["readings"]
    assert (reading["entries"], reading["passed_over"], reading["last_seq"]) == (1, 1, 3)
    assert rows(services, workspace.slug, "SELECT reason, via FROM ledger_resets") == [("riscritto a mano", "cli")]
    again = cli("ledger", "reset-source", "-w", workspace.slug, "-s", "s1", "--reason", "x")
    assert "from seq 4 on" in again.stdout
    assert answer(cli("ledger", "reset-source", *where, "-s", "s1", "--reason", "x"), 12)["error"] == "NothingRead"


def test_a_retry_that_says_what_it_expects_stores_nothing_twice(cli: Cli, workspace: Workspace) -> None:
    append = ["ledger", "append", "-w", workspace.slug, "-s", "s1", "--json", "--expect-seq"]
    lines = draft(subject="a").decode() + "\n" + draft(subject="b").decode()
    assert answer(cli(*append, "0", stdin=lines))["last_seq"] == 2
    refused = answer(cli(*append, "0", stdin=lines), 12)
    assert (refused["error"], "--expect-seq 2" in refused["hint"]) == ("LedgerMoved", True)
    assert answer(cli(*append, "2", stdin=draft(subject="c").decode()))["seqs"] == [3]
    assert cli(*append, "-1").returncode == 2


def test_the_quarantine_is_listed_with_its_counts_page_by_page(
    cli: Cli, workspace: Workspace, services: Services
) -> None:
    where = ["-w", workspace.slug]
    assert cli("ledger", "quarantine", *where).stdout.rstrip().endswith(": 0 lines")
    drop(services, workspace.slug, line(seq=1), b"{\xff\x1b[31m", b"[]", b'{"seq": 2')
    drop(services, workspace.slug, b"null", session="s2")
    cli("ledger", "read", *where)
    found = answer(cli("ledger", "quarantine", *where, "--limit", "2", "--offset", "1", "--json"))
    assert found["total"] == 4
    assert found["counts"] == [
        {"reason": "shape", "lines": 2},
        {"reason": "not_json", "lines": 1},
        {"reason": "not_utf8", "lines": 1},
    ]
    assert [(bad["session"], bad["line_number"], bad["reason"], bad["head"]) for bad in found["lines"]] == [
        ("s1", 3, "shape", "[]"),
        ("s1", 4, "not_json", '{"seq": 2'),
    ]
    only = answer(cli("ledger", "quarantine", *where, "-s", "s2", "--json"))
    assert (only["total"], only["lines"][0]["source"]) == (1, f"{workspace.slug}/s2.jsonl")
    shown = cli("ledger", "quarantine", *where).stdout
    assert "4 lines" in shown
    assert "\\xff" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize("command", [["export"], ["reset-source", "--reason", "x"], ["quarantine"]])
def test_a_workspace_that_is_not_there_is_one_named_error(cli: Cli, command: list[str]) -> None:
    process = cli("ledger", *command, "-w", "no-such", *([] if command == ["quarantine"] else ["-s", "s1"]))
    assert process.returncode == 11
    assert "UnknownWorkspace" in process.stderr
    assert process.stdout == ""
