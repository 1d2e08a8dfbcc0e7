"""The command line as a person and a harness meet it: answers on standard output, exit codes by family."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, closed_port, line

Process = subprocess.CompletedProcess[str]
SCHEMA = Path(__file__).resolve().parent.parent.parent / "docs" / "contract.schema.json"
PUBLISHED = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def answer(process: Process, code: int = 0) -> dict[str, Any]:
    """The JSON answer, and nothing else, of a command that ended with this code."""
    assert process.returncode == code, process.stderr
    assert "Traceback" not in process.stderr
    document: dict[str, Any] = json.loads(process.stdout)
    assert document["contract"] == 1
    PUBLISHED.validate(document)
    return document


@pytest.fixture
def runtime(workspace: Workspace, tmp_path: Path) -> str:
    file = tmp_path / "runtime.yaml"
    file.write_text(f"workspace: {workspace.slug}\ndatabase: cardio\nschema: public\nlanguage: it\n")
    return str(file)


def test_the_whole_path_by_commands(program: Cli, runtime: str) -> None:
    lines = b"\n".join(
        [
            line("session_opened", question="Quante ablazioni per anno?"),
            line(**ABLATION),
            line("table_promoted", subject="fact_procedure"),
        ]
    ).decode()

    appended = answer(program("ledger", "append", "-c", runtime, "-s", "s1", "--json", stdin=lines))
    assert appended["seqs"] == [1, 2, 3]
    shown = answer(program("ledger", "show", "-c", runtime, "-s", "s1", "--json"))
    assert [row["status"] for row in shown["rows"]] == ["control", "effective", "effective"]
    offered = answer(program("promote", "preview", "-c", runtime, "-s", "s1", "--json"))
    assert [offer["candidate"]["seq"] for offer in offered["candidates"]] == [2]
    preview = offered["preview_id"]
    decided = answer(program("promote", "save-one", "-c", runtime, "--preview", preview, "--seq", "2", "--json"))
    assert (decided["verdicts"][0]["outcome"], decided["verdicts"][0]["card_id"]) == ("created", "mem-0001")
    assert decided["propagation"] == "current"
    again = answer(program("promote", "decide", "-c", runtime, "--preview", preview, "--select", "2", "--json"))
    assert again["verdicts"] == decided["verdicts"]
    indexed = answer(program("index", "-c", runtime, "--json"))
    assert (indexed["status"], indexed["queued"], indexed["drain"]["upserted"]) == ("ok", 0, 0)
    found = answer(program("search", "-c", runtime, "How many ablations per year?", "--json"))
    assert [proposal["card"]["subject"] for proposal in found["proposals"]] == ["ablazione"]
    assert found["proposals"][0]["card"]["question_context"] == "Quante ablazioni per anno?"
    nothing = answer(program("promote", "preview", "-c", runtime, "-s", "s1", "--json"))
    assert (nothing["status"], nothing["preview_id"]) == ("nothing_to_decide", None)


def test_the_tables_for_people_say_the_same(cli: Cli, runtime: str, workspace: Workspace) -> None:
    cli("ledger", "append", "-c", runtime, "-s", "s1", stdin=line(**ABLATION).decode())
    shown = cli("promote", "preview", "-c", runtime, "-s", "s1")
    assert "ablazione" in shown.stdout
    preview = shown.stdout.rsplit("preview ", 1)[1].split()[0]
    decided = cli("promote", "decide", "-c", runtime, "--preview", preview, "--decline", "1")
    assert "declined" in decided.stdout
    listed = cli("workspace", "list")
    (line_of,) = [shown for shown in listed.stdout.splitlines() if workspace.slug in shown]
    assert {workspace.language, workspace.default_database} <= set(re.split(r"[\W]+", line_of))
    assert "cardio" in cli("workspace", "show", workspace.slug).stdout
    assert "no memory found" in cli("search", "-c", runtime, "ablazione").stdout


def test_a_workspace_is_made_once(cli: Cli, workspace: Workspace) -> None:
    same = ["workspace", "create", workspace.slug, "--language", "it", "--database", "cardio", "--json"]

    assert answer(cli(*same), 12)["error"] == "WorkspaceExists"
    same += ["--schema", "public", "--title", "Test", "--if-missing"]
    assert answer(cli(*same))["status"] == "exists"


def test_refused_lines_are_answered_and_the_others_stored(cli: Cli, runtime: str) -> None:
    lines = "\n".join([line(**ABLATION).decode(), "{not json", '{"seq": 9, "type": "x"}', line(subject="b").decode()])

    document = answer(cli("ledger", "append", "-c", runtime, "-s", "s1", "--json", stdin=lines), 10)

    assert document["seqs"] == [1, 2]
    assert [(item["line_number"], item["reason"]) for item in document["refused"]] == [
        (2, "not_json"),
        (3, "seq_given"),
    ]


def test_the_inbox_quarantines_a_bad_line_with_file_line_and_reason(
    cli: Cli, runtime: str, workspace: Workspace, settings: Settings
) -> None:
    inbox = settings.inbox_path / workspace.slug
    inbox.mkdir(parents=True)
    good = json.dumps({"seq": 1, "ts": "2026-01-15T09:00:00Z", "type": "concept_clarified", **ABLATION})
    (inbox / "s1.jsonl").write_text(f"{good}\n[1, 2]\n" + good.replace('"seq": 1', '"seq": 3') + "\n")
    (inbox / "bad name!.jsonl").write_text("\n")

    document = answer(cli("ledger", "read", "-c", runtime, "--json"), 10)

    (reading,) = document["readings"]
    assert (reading["entries"], reading["last_seq"]) == (2, 3)
    (bad,) = reading["quarantined"]
    assert (bad["source"], bad["line_number"], bad["reason"]) == (f"{workspace.slug}/s1.jsonl", 2, "shape")
    assert [problem["file"] for problem in document["problems"]] == ["bad name!.jsonl"]


@pytest.mark.parametrize(
    ("question", "error", "code"),
    [
        ("", "BadQuestion", 10),
        ("   ", "BadQuestion", 10),
        ("x" * 100_000, "BadQuestion", 10),
        ("chi?", "NotIndexed", 50),
    ],
)
def test_a_search_that_cannot_be_answered(cli: Cli, runtime: str, question: str, error: str, code: int) -> None:
    assert answer(cli("search", "-c", runtime, question, "--json"), code)["error"] == error


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (["search", "-w", "no-such", "x"], "UnknownWorkspace", 11),
        (["search", "-w", "Bad Name", "x"], "BadWorkspace", 10),
        (["search", "-c", "no-such-file.yaml", "x"], "BadRuntime", 10),
        (["ledger", "show", "-w", "no-such", "-s", "s1"], "UnknownWorkspace", 11),
        (["ledger", "append", "-w", "no-such", "-s", "s1"], "UnknownWorkspace", 11),
        (["promote", "preview", "-w", "no-such", "-s", "s1"], "UnknownWorkspace", 11),
        (["index", "-w", "no-such"], "UnknownWorkspace", 11),
        (["workspace", "show", "no-such"], "UnknownWorkspace", 11),
        (["workspace", "create", "x_", "--language", "it", "--database", "d"], "BadWorkspace", 10),
        (["workspace", "create", "xx", "--language", "xx", "--database", "d"], "UnknownLanguage", 20),
        (["workspace", "create", "xx", "--language", "it", "--database", "d", "--profile", "p"], "UnknownProfile", 20),
    ],
)
def test_what_is_not_there_is_one_named_error(cli: Cli, arguments: list[str], error: str, code: int) -> None:
    document = answer(cli(*arguments, "--json"), code)

    assert document["error"] == error
    assert document["message"]
    assert document["hint"]


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ("{database: other}", "FilterNotAllowed"),
        ("{schema: other}", "FilterNotAllowed"),
        ("{column: c}", "BadDependency"),
        ("{colour: red}", "BadInput"),
        ("[table]", "BadInput"),
        ("{table: [a", "BadInput"),
        ("[]", "BadInput"),
        ("[" * 5000, "BadInput"),
        ("{concepts: !!timestamp x}", "BadInput"),
    ],
)
def test_filters_that_cannot_be_are_refused(cli: Cli, runtime: str, filters: str, error: str) -> None:
    assert answer(cli("search", "-c", runtime, "x", "--filters", filters, "--json"), 10)["error"] == error


def test_an_unknown_session_and_preview(cli: Cli, runtime: str) -> None:
    preview = "00000000-0000-0000-0000-000000000000"

    assert answer(cli("promote", "preview", "-c", runtime, "-s", "none", "--json"), 11)["error"] == "UnknownSession"
    decided = cli("promote", "decide", "-c", runtime, "--preview", preview, "--select", "1", "--json")
    assert answer(decided, 11)["error"] == "UnknownPreview"


def test_a_runtime_of_another_language_is_refused(cli: Cli, workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "runtime.yaml"
    file.write_text(f"workspace: {workspace.slug}\ndatabase: cardio\nlanguage: en\n")

    assert answer(cli("search", "-c", str(file), "x", "--json"), 10)["error"] == "BadRuntime"


@pytest.mark.parametrize(
    ("variable", "value", "error", "code"),
    [
        ("MEMORY_POSTGRES_HOST", "127.0.0.1", "StoreUnavailable", 30),
        ("MEMORY_QDRANT_URL", "http://127.0.0.1:{port}", "IndexUnavailable", 31),
        ("MEMORY_OLLAMA_URL", "http://127.0.0.1:{port}", "EmbedderUnavailable", 32),
        ("MEMORY_EMBEDDING_MODEL", "no-such-model", "ModelMissing", 32),
        ("MEMORY_SECRETS_DIR", "/nowhere", "MissingSecret", 20),
        ("MEMORY_STATE", "/nowhere", "ServersUnknown", 20),
        ("MEMORY_POSTGRES_PORT", "abc", "ConfigurationError", 20),
        ("MEMORY_OLLAMA_TIMEOUT", "nan", "ConfigurationError", 20),
    ],
)
def test_a_server_or_setting_that_is_wrong_is_one_named_error(
    cli: Cli, runtime: str, variable: str, value: str, error: str, code: int
) -> None:
    changed = {variable: value.format(port=closed_port())}
    if variable == "MEMORY_POSTGRES_HOST":
        changed["MEMORY_POSTGRES_PORT"] = str(closed_port())
    cli("ledger", "append", "-c", runtime, "-s", "s1", stdin=line(**ABLATION).decode())

    process = cli("index", "-c", runtime, "--json", **changed)

    document = answer(process, code)
    assert document["error"] == error
    assert error in process.stderr


def test_no_secret_appears_in_an_error(cli: Cli, runtime: str, settings: Settings) -> None:
    process = cli("index", "-c", runtime, MEMORY_POSTGRES_PORT=str(closed_port()), MEMORY_POSTGRES_HOST="127.0.0.1")

    told = process.stdout + process.stderr
    assert process.returncode == 30
    for file in settings.secrets.iterdir():
        assert file.read_text().strip() not in told


def test_hostile_text_cannot_act_on_the_terminal(cli: Cli, runtime: str, services: Services) -> None:
    hostile = "a\x1b[31mrosso\u202egnp.exe [bold]x[/bold]"
    cli("ledger", "append", "-c", runtime, "-s", "s1", stdin=line(subject="x", detail=hostile).decode())

    shown = cli("promote", "preview", "-c", runtime, "-s", "s1").stdout

    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "[bold]x[/bold]" in shown


def test_wrong_usage_has_a_code_of_its_own(cli: Cli) -> None:
    assert cli("search").returncode == 2
    assert cli("no-such-command").returncode == 2
    assert cli("ledger", "append", "-s", "s1").returncode == 2


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("search", ("1 to 100", "0 to 8", "cites or rejects")),
        ("cards list", ("1 to 1000",)),
        ("repairs list", ("1 to 1000",)),
        ("audit", ("1 to 1000",)),
        ("propagation list", ("1 to 10000",)),
        ("promote preview", ("1 or more",)),
    ],
)
def test_the_help_tells_the_bounds_of_an_option(cli: Cli, command: str, told: tuple[str, ...]) -> None:
    shown = " ".join(cli(*command.split(), "--help").stdout.split())

    assert [words for words in told if words not in shown] == []


def test_search_starts_without_dagster_or_pandas(cli: Cli, environment: dict[str, str]) -> None:
    import sys

    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; import memory_pipeline.harness.cli, memory_pipeline.harness.commands.search;"
            "print([name for name in ('dagster', 'pandas') if name in sys.modules])",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [["search", "x"], ["search", "x", "--bogus"], ["promote", "decide", "-w", "w", "--preview", "zzz"], ["no-such"]],
)
def test_wrong_usage_is_an_answer_of_the_contract_too(cli: Cli, arguments: list[str]) -> None:
    document = answer(cli(*arguments, "--json"), 2)

    assert document["status"] == "error"
    assert document["message"]
