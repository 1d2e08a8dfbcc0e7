"""Standard streams that are closed, full or abandoned: the work is done, and what cannot be told is an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, line

LOST = 14


def _command(shell: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `memory-pipeline` (written `$M`) from a shell, which can close streams."""
    return subprocess.run(
        ["/bin/bash", "-c", shell],
        env={**environment, "M": f"{sys.executable} -m memory_pipeline"},
        input=line(**ABLATION).decode(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("json", ["", "--json"])
def test_an_answer_that_cannot_be_written_is_an_exit_code_of_its_own(environment: dict[str, str], json: str) -> None:
    told = _command(f"$M workspace list {json} > /dev/full", environment)

    assert told.returncode == LOST
    assert told.stderr.startswith("AnswerLost: ")
    assert "what was asked is done" in told.stderr


@pytest.mark.parametrize("stream", [">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_change_nothing_of_what_is_done(
    environment: dict[str, str], workspace: Workspace, stream: str
) -> None:
    told = _command(f"$M workspace show {workspace.slug} --json {stream}", environment)

    assert (told.returncode, told.stderr) == (0, "")
    assert (workspace.slug in told.stdout) is (">&-" not in stream.replace("2>&-", ""))


def test_an_error_keeps_its_code_where_nobody_can_read_it(environment: dict[str, str]) -> None:
    told = _command("$M workspace show nothing-of-that-name 2>/dev/full", environment)

    assert (told.returncode, told.stdout, told.stderr) == (11, "", "")


def test_a_closed_standard_input_is_an_empty_one(environment: dict[str, str], workspace: Workspace) -> None:
    told = _command(f"$M ledger append -w {workspace.slug} -s s1 --json <&-", environment)

    assert "Traceback" not in told.stderr
    assert '"seqs":[]' in told.stdout


def test_a_reader_that_goes_away_is_told_by_the_code_alone(environment: dict[str, str]) -> None:
    told = _command('$M workspace list | true; echo "${PIPESTATUS[0]}"', environment)

    assert told.stderr == ""
    assert told.stdout.strip() == str(LOST)


@pytest.mark.parametrize(
    "variable",
    [
        {"PGHOSTADDR": "192.0.2.1"},
        {"PGSERVICE": "another"},
        {"PGOPTIONS": "-c search_path=public"},
        {"PGTARGETSESSIONATTRS": "standby", "PGCLIENTENCODING": "SQL_ASCII"},
    ],
    ids=lambda variable: next(iter(variable)),
)
def test_variables_meant_for_another_postgresql_lead_nowhere_else(
    cli: Cli, workspace: Workspace, variable: dict[str, str]
) -> None:
    told = cli("workspace", "show", workspace.slug, "--json", **variable)

    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_runtime_that_is_no_file_is_refused_and_not_waited_for(
    environment: dict[str, str], tmp_path: Path, kind: str
) -> None:
    file = Path("/dev/zero") if kind == "device" else tmp_path / "runtime.yaml"
    if kind == "pipe":
        os.mkfifo(file)

    told = _command(f"$M search -c {file} ablazione", environment)

    assert told.returncode == 10
    assert "is not a regular file" in told.stderr
