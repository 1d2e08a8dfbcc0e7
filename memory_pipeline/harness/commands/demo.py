"""`memory-pipeline demo`: the whole path once, on a stack of its own, with what a person wants to see of it."""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from memory_pipeline.core.candidates import LeftOut
from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.errors import ConfigurationError
from memory_pipeline.core.ledger import DECISION_TYPES, REUSABLE_TYPES
from memory_pipeline.harness import sample
from memory_pipeline.harness.commands.search import print_proposals
from memory_pipeline.harness.control_room import dagster_instance, deployed
from memory_pipeline.harness.output import print_table
from memory_pipeline.harness.runtime import parse_runtime
from memory_pipeline.harness.setup import start
from memory_pipeline.operations.decide import Decision, decide
from memory_pipeline.operations.inbox import read_inbox
from memory_pipeline.operations.ledger import Ledger, show_ledger
from memory_pipeline.operations.preview import Preview, preview
from memory_pipeline.operations.recall import Recall, SearchRequest, recall
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.settings import DEFAULT_STATE, Settings

_WHY = {
    LeftOut.Reason.TABLE_NAME: "the name of a table is no concept",
    LeftOut.Reason.RETRACTED: "retracted in the session",
    LeftOut.Reason.STALE: "its phase was rolled back or reopened",
    LeftOut.Reason.DECLINED: "declined before",
    LeftOut.Reason.ALREADY_PROMOTED: "promoted before",
}
_TOP = 3
"""An expected memory has to be among the first so many."""


class DemoFailed(ConfigurationError):
    """The demo ran, and something came back that was not expected."""

    exit_code = 1


@click.command()
@click.option("--keep", is_flag=True, help="Leave the demo's servers running.")
def demo(keep: bool) -> None:
    """Show the main job: from the ledgers of sample sessions to memories found again.

    Uses servers and data of its own in <state>/demo, which it empties first.
    """
    began = time.monotonic()
    settings = _own_settings()
    _title(1, "Start the embedded stack")
    from memory_pipeline.embedded.stack import EmbeddedStack

    stack = EmbeddedStack(settings.state)
    with _only_one(settings.state):
        stack.down(purge=True, say=_quiet)
        try:
            settings = start(settings, click.echo)
            with Services(settings, via="cli") as services:
                wrong = _run(services)
        finally:
            if not keep:
                click.echo("stopping the demo's servers")
                stack.down(say=_quiet)
    if wrong:
        raise DemoFailed(f"{len(wrong)} answers are not as expected: {'; '.join(wrong)}", hint="read the tables above")
    click.echo(
        f"\nThe demo did what it should in {time.monotonic() - began:.0f} s.\n"
        f"See it in the Dagster UI:  {_serve(settings.state)}\n"
        f"Remove its data:           MEMORY_STATE={_shown(settings.state)} memory-pipeline down --purge\n"
    )


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Each demo empties the folder first: two would take the ground from under each other."""
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.with_name("demo.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(f"a demo runs in {state} already", hint="wait until it is done") from error
        yield


def _own_settings() -> Settings:
    """Settings of the demo's own folder; the servers of the registry and the index are never the user's."""
    for name in ("MEMORY_POSTGRES_HOST", "MEMORY_QDRANT_URL"):
        if name in os.environ:
            raise ConfigurationError(
                f"{name} is set, and the demo empties what it runs on", hint=f"run it with {name} unset"
            )
    state = (Settings().state / "demo").resolve()
    for name in ("MEMORY_INBOX", "MEMORY_SECRETS_DIR"):
        os.environ.pop(name, None)
    os.environ["MEMORY_STATE"] = str(state)  # for what Dagster starts
    return Settings()


def _run(services: Services) -> list[str]:
    """Every step after the start; returns what came out wrong."""
    _title(2, "Ingest the ledgers of two sample workspaces")
    _ingest(services)
    _title(3, "Preview and decide, session by session")
    wrong = [problem for planned in sample.plan() for problem in _gate(services, planned)]
    _title(4, "Materialise the assets through Dagster")
    wrong += _materialise(services.settings)
    _title(5, "Ask questions in later sessions")
    for question in sample.questions():
        wrong += _ask(services, question)
    return wrong


def _ingest(services: Services) -> None:
    for workspace in sample.workspaces():
        create_workspace(services, workspace)
        inbox = services.settings.inbox_path / workspace.slug
        inbox.mkdir(parents=True, exist_ok=True)
        for planned in sample.plan():
            if planned.workspace == workspace.slug:
                (inbox / f"{planned.session}.jsonl").write_bytes(sample.ledger(workspace.slug, planned.session))
        readings, _ = read_inbox(services, workspace.slug)
        print_table(
            f"{workspace.slug} ({workspace.language}): {workspace.title}",
            ("session", "entries", "quarantined"),
            [
                (
                    reading.session,
                    reading.entries,
                    "; ".join(f"line {line.line_number}: {line.message}" for line in reading.quarantined),
                )
                for reading in readings
            ],
        )


def _gate(services: Services, planned: sample.SessionPlan) -> list[str]:
    offered = preview(services, planned.workspace, planned.session, limit=100)
    seqs = {offer.candidate.content.subject: offer.candidate.seq for offer in offered.candidates}
    missing = [subject for subject in (*planned.selected, *planned.declined) if subject not in seqs]
    if offered.preview_id is None or missing:
        return [f"{planned.session} does not offer {', '.join(missing) or 'anything'}"]
    decision = decide(
        services,
        planned.workspace,
        offered.preview_id,
        selected=[seqs[subject] for subject in planned.selected],
        declined=[seqs[subject] for subject in planned.declined],
    )
    _print_gate(planned, offered, decision)
    _print_local(show_ledger(services, planned.workspace, planned.session))
    return []


def _print_gate(planned: sample.SessionPlan, offered: Preview, decision: Decision) -> None:
    contents = {offer.candidate.seq: offer.candidate.content for offer in offered.candidates}
    decided: list[tuple[int, str, str, str]] = [
        (
            verdict.seq,
            contents[verdict.seq].subject,
            verdict.outcome if verdict.card_id is None else f"{verdict.outcome} {verdict.card_id}",
            "with seq " + ", ".join(map(str, verdict.folded_seqs)) if verdict.folded_seqs else "",
        )
        for verdict in decision.verdicts
    ]
    left = [(out.seq, out.subject, "not offered", _WHY[out.reason]) for out in offered.left_out]
    print_table(
        f"{planned.workspace} / {planned.session}",
        ("seq", "concept", "what became of it", "note"),
        sorted([*decided, *left]),
    )


def _print_local(ledger: Ledger) -> None:
    """Decisions that stay with their question, whatever the reviewer thinks of them."""
    local = Counter(
        row.type for row in ledger.rows if row.type in DECISION_TYPES - REUSABLE_TYPES and row.origin == "harness"
    )
    told = ", ".join(f"{count} {type_}" for type_, count in sorted(local.items()))
    click.echo(f"never memories, local to this question: {told}\n")


def _materialise(settings: Settings) -> list[str]:
    from memory_pipeline.definitions import defs
    from memory_pipeline.defs.running import materialize_workspace

    wrong = []
    with dagster_instance(settings) as instance:
        for workspace in sample.workspaces():
            with _progress(f"{workspace.slug}: ") as told:
                done = materialize_workspace(defs, instance, workspace.slug, progress=told)
            print_table(f"{workspace.slug}: run {done.run_id[:8]}", ("asset or check", "result"), done.rows)
            if not done.checks_passed:
                wrong.append(f"a check of {workspace.slug} failed")
    return wrong


def _ask(services: Services, asked: sample.SampleQuestion) -> list[str]:
    runtime = parse_runtime(sample.runtime(asked.workspace), f"{asked.workspace}/runtime.yaml")
    answer = recall(
        services,
        SearchRequest(
            workspace=asked.workspace,
            question=asked.question,
            place=runtime.place,
            filters=SearchFilters(**asked.filters.model_dump()),
            limit=10,
        ),
    )
    first = answer.proposals[:_TOP]
    print_proposals(first, title=f"[{asked.language}, {asked.workspace}] {asked.question}", longest=60)
    return _problems(asked, answer)


def _problems(asked: sample.SampleQuestion, answer: Recall) -> list[str]:
    top = {proposal.card.subject for proposal in answer.proposals[:_TOP]}
    found = {proposal.card.subject for proposal in answer.proposals}
    lost = [f"{subject!r} is not among the first {_TOP}" for subject in asked.expects if subject not in top]
    leaked = [f"{subject!r} came back" for subject in asked.never if subject in found]
    if not lost + leaked:
        click.secho(f"as expected among the first {_TOP}: {', '.join(asked.expects)}\n", fg="green")
    return [f"{asked.question}: {problem}" for problem in lost + leaked]


@contextmanager
def _progress(prefix: str) -> Iterator[Callable[[str], None]]:
    """A sign of life: a moving line on a terminal, a line for each step elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(prefix + "starting") as status:
            yield lambda step: status.update(f"{prefix}{step}")
    else:
        yield lambda step: click.echo(f"{prefix}{step}", err=True)


def _title(number: int, text: str) -> None:
    click.secho(f"\n{number}. {text}", bold=True)


def _quiet(_: str) -> None:
    """Say nothing: cleaning up before and after is not the story."""


def _serve(state: Path) -> str:
    """What serves the UI over the demo. The Makefile's target is shorter where it means this folder."""
    checkout = deployed("Makefile").parent
    command = f"MEMORY_STATE={_shown(state)} memory-pipeline dev"
    usual = (checkout / DEFAULT_STATE / "demo").resolve()
    here = (checkout / "Makefile").is_file() and Path.cwd() == checkout and state == usual
    return f"make dev-demo   ({command})" if here else command


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
