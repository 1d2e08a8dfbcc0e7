"""`evaluate` and `golden` as a person and a program see them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.curate import add_cards
from memory_pipeline.operations.services import Services
from memory_pipeline.store import workspaces
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, READMISSION
from memory_pipeline_tests.operations.corpus import write_set

CARDS = [{"id": 1, "database": "db", "subject": "net margin", "detail": "what is left after all costs"}]
QUERIES = [{"id": 1, "database": "db", "question": "net margin?", "relevant": [1]}]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_set(tmp_path / "corpora" / "tiny", cards=CARDS, queries=QUERIES).parent


def test_the_answer_is_the_figures_and_nothing_else(cli: Cli, corpus: Path) -> None:
    answered = cli("evaluate", "--corpora", str(corpus), "--set", "tiny", "--language", "en", "--json")

    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    perfect = {"ndcg@10": 1.0, "r@1": 1.0, "r@5": 1.0, "mrr": 1.0}
    for row, protocol in zip(answer["sets"], ("filtered", "global"), strict=True):
        latency = row.pop("latency_ms")
        assert latency["total"].keys() == {"p50", "p95"}
        assert row == {
            "name": "tiny", "protocol": protocol, "language": "en", "queries": 1,
            "fused": perfect, "dense": perfect, "bm25": perfect, "closure_recall": None, "scope_leaks": 0,
        }  # fmt: skip
    assert "tiny: 1 of 1 questions" in answered.stderr


def test_a_table_shows_each_branch_beside_the_fusion(cli: Cli, corpus: Path) -> None:
    write_set(corpus / "mute", cards=CARDS)

    shown = cli("evaluate", "--corpora", str(corpus))

    assert shown.returncode == 0, shown.stderr
    for word in (
        "tiny",
        "filtered en",
        "global en",
        "1 queries",
        "fused",
        "dense",
        "bm25",
        "nDCG@10",
        "leaks",
        "p50/p95",
        "mute",
        "0 queries",
    ):
        assert word in shown.stdout


def test_a_bad_corpus_is_an_error_of_the_callers(cli: Cli, corpus: Path) -> None:
    (corpus / "tiny" / "queries.jsonl").write_text("{\n")

    refused = cli("evaluate", "--corpora", str(corpus), "--json")

    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (10, "BadCorpus")


def test_ctrl_c_stops_and_leaves_nothing(services: Services, environment: dict[str, str], tmp_path: Path) -> None:
    many = [{**QUERIES[0], "id": number} for number in range(5_000)]
    path = write_set(tmp_path / "endless", cards=CARDS, queries=many)
    with services.database.transaction(Role.OWNER, None) as tx:
        before = workspaces.scratch_slugs(tx)
    running = subprocess.Popen(
        [sys.executable, "-m", "memory_pipeline", "evaluate", "--corpora", str(path)],
        env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with running, services.database.transaction(Role.OWNER, None) as tx:
        assert running.stderr is not None
        assert running.stderr.readline() == "endless: 0 of 5000 questions\n"  # its workspace is there
        made = set(workspaces.scratch_slugs(tx)) - set(before)
        running.send_signal(signal.SIGINT)
        assert running.stderr.read().strip() == "stopped"
        assert running.wait(timeout=60) == 130
        assert len(made) == 1
        assert workspaces.scratch_slugs(tx) == before


def test_golden_questions_are_added_imported_and_listed(
    cli: Cli, services: Services, workspace: Workspace, tmp_path: Path
) -> None:
    add_cards(services, workspace.slug, [CardFields(**card) for card in (ABLATION, READMISSION)])
    here = ("-w", workspace.slug, "--json")
    row = {"question": "Chi torna?", "expected": ["mem-0002"], "database": "dwh"}
    (tmp_path / "golden.jsonl").write_text(json.dumps(row) + "\n")

    added = cli("golden", "add", *here, "Chi ha fatto l'ablazione?", "--expect", "mem-0001", "--expect", "mem-0002")
    imported = cli("golden", "import", *here, "golden.jsonl")
    unknown = cli("golden", "add", *here, "Chi?", "--expect", "mem-0007")
    listed = json.loads(cli("golden", "list", *here).stdout)
    early = cli("golden", "accept", *here)

    assert [json.loads(done.stdout)["added"] for done in (added, imported)] == [1, 1]
    assert (unknown.returncode, json.loads(unknown.stdout)["error"]) == (11, "UnknownCard")
    assert [(each["expected"], each["place"]["database"]) for each in listed["questions"]] == [
        (["mem-0001", "mem-0002"], "cardio"),
        (["mem-0002"], "dwh"),
    ]
    assert (early.returncode, json.loads(early.stdout)["error"]) == (11, "NotMeasured")
    assert "Chi torna?" in cli("golden", "list", "-w", workspace.slug).stdout
