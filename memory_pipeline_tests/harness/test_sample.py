"""The sample is what it says: readable but for the lines broken on purpose, and decided exactly as planned."""

from __future__ import annotations

import unicodedata
from functools import cache
from importlib.resources import files

import pytest
import yaml

from memory_pipeline.core.candidates import Derivation, derive
from memory_pipeline.core.cards import CardContent
from memory_pipeline.core.dependencies import Dependency, serves
from memory_pipeline.core.effective import Row, Status, evaluate
from memory_pipeline.core.errors import BadLedgerLine
from memory_pipeline.core.ledger import DECISION_TYPES, EntryType, LedgerEntry, parse_entry
from memory_pipeline.core.references import decision_of, phase_of
from memory_pipeline.harness import sample

PLANS = sample.plan()
QUESTIONS = sample.questions()
WORKSPACES = {workspace.slug: workspace for workspace in sample.workspaces()}

each_session = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.session)
each_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.question)


# --- the files ---------------------------------------------------------------------------------------------------


def test_plan_covers_every_ledger() -> None:
    folder = files(sample)
    shipped = {
        (slug, entry.name.removesuffix(".jsonl"))
        for slug in WORKSPACES
        for entry in folder.joinpath(slug).iterdir()
        if entry.name.endswith(".jsonl")
    }
    assert shipped == {(plan.workspace, plan.session) for plan in PLANS}
    assert len(PLANS) == len(shipped)


@pytest.mark.parametrize("slug", WORKSPACES)
def test_runtime_binds_what_the_workspace_has_by_default(slug: str) -> None:
    workspace = WORKSPACES[slug]
    assert yaml.safe_load(sample.runtime(slug)) == {
        "workspace": slug,
        "database": workspace.default_database,
        "schema": workspace.default_schema,
        "language": workspace.language,
    }


def test_texts_hold_no_control_or_bidi_characters() -> None:
    texts = [sample.runtime(slug) for slug in WORKSPACES]
    texts += [sample.ledger(plan.workspace, plan.session).decode("utf-8") for plan in PLANS]
    texts += [
        files(sample).joinpath(name).read_text("utf-8") for name in ("workspaces.yaml", "plan.yaml", "questions.yaml")
    ]
    for text in texts:
        assert text.endswith("\n")
        assert unicodedata.is_normalized("NFC", text)
        # Cc control, Cf format (all bidi marks are of this category), Co and Cn private and unassigned
        assert not {sign for sign in text if sign != "\n" and unicodedata.category(sign) in {"Cc", "Cf", "Co", "Cn"}}


# --- the ledgers -------------------------------------------------------------------------------------------------


@each_session
def test_only_the_lines_broken_on_purpose_are_refused(plan: sample.SessionPlan) -> None:
    entries, refused = _read(plan.workspace, plan.session)
    assert refused == plan.quarantined_lines
    assert entries[0].type == EntryType.SESSION_OPENED
    assert entries[0].question
    assert [entry.type for entry in entries].count(EntryType.SESSION_OPENED) == 1
    stamps = [entry.ts for entry in entries]
    assert stamps == sorted(stamps)


@each_session
def test_only_the_inert_entries_are_of_an_unknown_type(plan: sample.SessionPlan) -> None:
    entries, _ = _read(plan.workspace, plan.session)
    assert tuple(entry.seq for entry in entries if entry.type not in set(EntryType)) == plan.inert


@pytest.mark.parametrize("slug", WORKSPACES)
def test_one_session_of_each_workspace_shows_quarantine(slug: str) -> None:
    broken = [plan for plan in PLANS if plan.workspace == slug and plan.quarantined_lines]
    assert [(len(plan.quarantined_lines), len(plan.inert)) for plan in broken] == [(1, 1)]


@each_session
def test_references_name_an_earlier_decision_or_a_phase(plan: sample.SessionPlan) -> None:
    entries, _ = _read(plan.workspace, plan.session)
    decisions: set[int] = set()
    for entry in entries:
        named = [decision_of(link.target) for link in entry.links]
        if entry.type == EntryType.DECISION_RETRACTED:
            named.append(decision_of(entry.detail))
        assert set(named) <= decisions, f"seq {entry.seq} names what is not before it"
        if entry.type in {EntryType.PHASE_REOPENED, EntryType.PHASE_ROLLED_BACK}:
            assert phase_of(entry.detail) is not None
        if entry.type in DECISION_TYPES:
            decisions.add(entry.seq)


# --- the plan ----------------------------------------------------------------------------------------------------


@each_session
def test_plan_decides_exactly_what_the_preview_offers(plan: sample.SessionPlan) -> None:
    candidates = _derive(plan).candidates
    offered = [candidate.content.subject for candidate in candidates]
    assert sorted(offered) == sorted([*plan.selected, *plan.declined])
    assert tuple(c.content.subject for c in candidates if not c.preselected) == plan.warned


@each_session
def test_left_out_concepts_are_left_out_for_the_reason_given(plan: sample.SessionPlan) -> None:
    entries, _ = _read(plan.workspace, plan.session)
    statuses = _statuses(entries)
    derivation = _derive(plan)
    table_names = {left.seq for left in derivation.left_out}
    folded = {seq for candidate in derivation.candidates for seq in candidate.folded_seqs}

    def reason(entry: LedgerEntry) -> str | None:
        if statuses[entry.seq] is Status.STALE:
            return "rolled back"
        if statuses[entry.seq] is Status.RETRACTED:
            return "retracted"
        if entry.seq in table_names:
            return "table name"
        return "folded" if entry.seq in folded else None

    found = [(e.seq, e.subject, reason(e)) for e in entries if e.type == EntryType.CONCEPT_CLARIFIED and reason(e)]
    assert found == [(left.seq, left.subject, left.reason) for left in plan.left_out]


def test_every_way_to_be_left_out_occurs() -> None:
    reasons = {left.reason for plan in PLANS for left in plan.left_out}
    assert reasons == {"table name", "retracted", "rolled back", "folded"}


# --- the questions -----------------------------------------------------------------------------------------------


@each_question
def test_expected_cards_are_promoted_and_serve_the_context(question: sample.SampleQuestion) -> None:
    cards = _promoted(question.workspace)
    for subject in question.expects:
        assert _admitted(cards[subject], question), f"{subject} is filtered out"


@each_question
def test_forbidden_subjects_exist_but_cannot_come_back(question: sample.SampleQuestion) -> None:
    cards = _promoted(question.workspace)
    written = {
        entry.subject
        for plan in PLANS
        if plan.workspace == question.workspace
        for entry in _read(plan.workspace, plan.session)[0]
    }
    for subject in question.never:
        assert subject in written
        assert subject not in cards or not _admitted(cards[subject], question), f"{subject} could be found"


def test_questions_cross_languages_both_ways() -> None:
    asked = {(question.workspace, question.language) for question in QUESTIONS}
    assert asked == {(slug, language) for slug in WORKSPACES for language in ("it", "en")}


def test_job_order_rule_requires_the_granularity_card() -> None:
    plan = next(plan for plan in PLANS if plan.session == "2025-09-22-confronto-esercizi")
    by_subject = {candidate.content.subject: candidate for candidate in _derive(plan).candidates}
    rule = by_subject["chiave della commessa fra esercizi"].content
    granularity = by_subject["granularità della commessa"]
    assert [(link.relation, link.target) for link in rule.links] == [("requires", f"seq:{granularity.seq}")]


def test_each_job_order_trap_fails_on_one_condition_alone() -> None:
    cards = _promoted("commesse")
    dwh = cards["chiave della commessa nel dwh"]
    budget = cards["chiave della commessa a budget"]
    combined = cards["raccordo fra ordine e commessa"]
    context = _path("erp", "dbo", "fact_commessa")

    assert not serves(dwh.dependencies, [context])
    assert serves(dwh.dependencies, [_path("dwh", "dbo", "fact_commessa")])

    assert serves(budget.dependencies, [context])
    assert budget.scope == ("budget",)

    assert not serves(combined.dependencies, [context])
    assert {dependency.path() for dependency in combined.dependencies} == {
        "erp/dbo/fact_ordine",
        "dwh/dbo/fact_commessa",
    }


# --- helpers -----------------------------------------------------------------------------------------------------


@cache
def _read(workspace: str, session: str) -> tuple[tuple[LedgerEntry, ...], tuple[int, ...]]:
    """The entries of a ledger, and the numbers of the lines that are refused."""
    entries: list[LedgerEntry] = []
    refused: list[int] = []
    for number, line in enumerate(sample.ledger(workspace, session).splitlines(), start=1):
        try:
            entries.append(parse_entry(line, after=entries[-1].seq if entries else 0))
        except BadLedgerLine:
            refused.append(number)
    return tuple(entries), tuple(refused)


def _statuses(entries: tuple[LedgerEntry, ...]) -> dict[int, Status]:
    statuses = evaluate([Row(entry.seq, entry.type, entry.phase, entry.detail) for entry in entries])
    return {entry.seq: status for entry, status in zip(entries, statuses, strict=True)}


def _derive(plan: sample.SessionPlan) -> Derivation:
    entries, _ = _read(plan.workspace, plan.session)
    statuses = _statuses(entries)
    return derive(
        [entry for entry in entries if statuses[entry.seq] is Status.EFFECTIVE],
        workspace=WORKSPACES[plan.workspace],
        question=entries[0].question or "",
        promoted={},
        declined=(),
    )


def _promoted(workspace: str) -> dict[str, CardContent]:
    """What the cards of a workspace say once the plan has been decided, by subject."""
    cards = [
        candidate.content
        for plan in PLANS
        if plan.workspace == workspace
        for candidate in _derive(plan).candidates
        if candidate.content.subject in plan.selected
    ]
    by_subject = {card.subject: card for card in cards}
    assert len(by_subject) == len(cards), "two cards of one workspace share a subject"
    return by_subject


def _admitted(card: CardContent, question: sample.SampleQuestion) -> bool:
    """Whether a card serves a question's context and scope, whatever its score."""
    workspace, filters = WORKSPACES[question.workspace], question.filters
    assert workspace.default_schema is not None
    context = _path(workspace.default_database, workspace.default_schema, filters.table)
    in_scope = not filters.scope or not card.scope or set(card.scope) == set(filters.scope)
    return in_scope and serves(card.dependencies, [context])


def _path(database: str, schema: str, table: str | None) -> str:
    return Dependency(database=database, schema_=schema, table=table).path()
