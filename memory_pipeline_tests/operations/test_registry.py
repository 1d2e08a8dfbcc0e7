"""Registry files: what is written says what the store holds, what is read was reviewed, and neither can be half."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.core.cards import CardContent, CardKind, Link, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadInput,
    BadRegistryFile,
    ImportChanged,
    UnknownWorkspace,
    WorkspaceRetired,
)
from memory_pipeline.core.ledger import MAX_LINE_BYTES
from memory_pipeline.core.registry import RegistryRecord
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.cards import show_card
from memory_pipeline.operations.curate import add_card, delete_card, edit_card, link_card
from memory_pipeline.operations.measure import SHOWN, measure_cards
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.registry import export_registry
from memory_pipeline.operations.registry_import import ImportOutcome, ImportReport, apply_import, review_import
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, ask, found, promote
from memory_pipeline_tests.nasty import STORABLE_TEXTS
from memory_pipeline_tests.operations.sessions import change, links, retire, rows, written

CREATED, ADDED, KNOWN = ImportOutcome
QUARANTINE = "SELECT line_number, reason, line, quarantined_by FROM import_quarantine ORDER BY line_number"


def record(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A record of a registry `old` that can be taken; `...` leaves a field out."""
    whole = {
        "workspace": "old",
        "id": f"mem-{number:04d}",
        "type": "concept_clarified",
        "subject": f"concetto {number}",
        "detail": f"regola numero {number}",
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def requires(*targets: int) -> list[dict[str, str]]:
    return [{"relation": "requires", "target": f"mem-{target:04d}"} for target in targets]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "registry.jsonl"


def write(file: Path, *records: dict[str, Any] | bytes) -> Path:
    file.write_bytes(
        b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in records)
    )
    return file


def take(services: Services, workspace: str, file: Path, **options: Any) -> ImportReport:
    """Review, then apply what was reviewed."""
    return apply_import(services, workspace, file, expect=review_import(services, workspace, file).expect, **options)


def outcomes(report: ImportReport) -> list[tuple[int, ImportOutcome, str | None]]:
    return [(line.line_number, line.outcome, line.card_id) for line in report.records]


# --- export ------------------------------------------------------------------------------------------------------


def test_a_file_holds_every_card_with_what_stands_behind_it(
    services: Services, workspace: Workspace, file: Path
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    place = Dependency(database="cardio", table="t")
    edit_card(services, workspace.slug, "mem-0001", 1, CardFields(concepts=("aritmia",), dependencies=(place,)))
    link_card(services, workspace.slug, "mem-0001", 2, Link(relation=Relation.REQUIRES, target="mem-0003"))
    delete_card(services, workspace.slug, "mem-0002", 1)
    add_card(services, workspace.slug, CardFields(subject="esempio", detail="SELECT 1"), CardKind.EXEMPLAR)

    written = export_registry(services, workspace.slug, file)

    lines = [RegistryRecord.model_validate_json(line) for line in file.read_bytes().splitlines()]
    assert [(line.id, line.kind, line.revision) for line in lines] == [
        ("mem-0001", "memory", 3),
        ("mem-0003", "memory", 1),
        ("mem-0004", "exemplar", 1),
    ]
    assert (written.cards, written.bytes) == (3, file.stat().st_size)
    first = lines[0]
    assert (first.workspace, first.detail, first.concepts) == (workspace.slug, ABLATION["detail"], ("aritmia",))
    assert [place.path() for place in first.dependencies] == ["cardio/public/t"]
    assert [(link.relation, link.target) for link in first.links] == [("requires", "mem-0003")]
    assert [(source.provenance, source.session, source.seq) for source in first.sources] == [("promotion", "s1", 1)]
    assert (lines[2].sources[0].provenance, lines[2].sources[0].decided_by) == ("curation", "memory_reviewer")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_same_cards_are_the_same_bytes(services: Services, workspace: Workspace, tmp_path: Path) -> None:
    for text in STORABLE_TEXTS.values():
        add_card(services, workspace.slug, CardFields(subject=f"a{text[:50]}", detail=f"a{text}"))
    first, second, third = (tmp_path / name for name in "abc")

    reports = [export_registry(services, workspace.slug, file) for file in (first, second)]
    edit_card(services, workspace.slug, "mem-0001", 1, CardFields(rationale="altro"))
    export_registry(services, workspace.slug, third)

    assert first.read_bytes() == second.read_bytes() != third.read_bytes()
    assert reports[0].sha256 == reports[1].sha256
    changed = [a != b for a, b in zip(first.read_bytes().split(b"\n"), third.read_bytes().split(b"\n"), strict=True)]
    assert changed.count(True) == 1


def test_a_file_is_there_whole_or_as_it_was(
    services: Services, workspace: Workspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    file.write_text("as it was")
    line = RegistryRecord.line

    def break_off(record: RegistryRecord) -> bytes:
        if record.id == "mem-0002":
            raise KeyboardInterrupt
        return line(record)

    monkeypatch.setattr(RegistryRecord, "line", break_off)
    with pytest.raises(KeyboardInterrupt):
        export_registry(services, workspace.slug, file)

    assert file.read_text() == "as it was"
    assert list(file.parent.iterdir()) == [file]


def test_a_place_that_cannot_be_written(services: Services, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "none" / "r.jsonl", tmp_path / "folder"):
        with pytest.raises(BadInput):
            export_registry(services, workspace.slug, place)
    with pytest.raises(UnknownWorkspace):
        export_registry(services, "t-never-made", tmp_path / "r.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# --- import ------------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_the_token_applies_it(
    services: Services, workspace: Workspace, file: Path
) -> None:
    write(file, record(1), record(2), record(3, type="table_promoted"), b"{")
    before = written(services, workspace.slug)

    reviewed = review_import(services, workspace.slug, file)

    assert not reviewed.applied
    assert outcomes(reviewed) == [(1, CREATED, None), (2, CREATED, None)]
    assert [(bad.line_number, bad.reason) for bad in reviewed.quarantined] == [(3, "not_reusable"), (4, "not_json")]
    assert (written(services, workspace.slug), rows(services, workspace.slug, QUARANTINE)) == (before, [])
    assert review_import(services, workspace.slug, file) == reviewed

    applied = apply_import(services, workspace.slug, file, expect=reviewed.expect)

    assert applied.applied
    assert outcomes(applied) == [(1, CREATED, "mem-0001"), (2, CREATED, "mem-0002")]
    assert show_card(services, workspace.slug, "mem-0002").sources == ("import:old/mem-0002",)
    assert propagate_at_once(services, workspace.slug).settled
    assert found(ask(services, workspace.slug, "regola numero 2"))[0] == "mem-0002"


def test_an_export_comes_in_elsewhere_with_new_ids_and_its_links(
    services: Services, make_workspace: MakeWorkspace, file: Path
) -> None:
    source, target = make_workspace().slug, make_workspace().slug
    promote(services, source, [ABLATION, READMISSION, MORTALITY])
    for card, to in (("mem-0001", "mem-0003"), ("mem-0003", "mem-0001"), ("mem-0001", "mem-0002")):
        revision = show_card(services, source, card).card.revision
        link_card(services, source, card, revision, Link(relation=Relation.REQUIRES, target=to))
    export_registry(services, source, file)
    add_card(services, target, CardFields(subject="altro", detail="presente già prima"))

    report = take(services, target, file)

    assert [line.card_id for line in report.records] == ["mem-0002", "mem-0003", "mem-0004"]
    assert links(services, target) == {
        "mem-0001": [],
        "mem-0002": ["mem-0004", "mem-0003"],
        "mem-0003": [],
        "mem-0004": ["mem-0002"],
    }
    ((imported,),) = rows(services, target, "SELECT imported FROM card_sources WHERE card_id = 'mem-0002'")
    assert (imported["workspace"], imported["id"], imported["revision"]) == (source, "mem-0001", 3)
    assert imported["sources"][0]["session"] == "s1"
    assert links(services, source)["mem-0001"] == ["mem-0003", "mem-0002"]


def test_a_second_import_changes_nothing_whatever_became_of_the_cards(
    services: Services, workspace: Workspace, file: Path
) -> None:
    write(file, record(1, links=requires(2)), record(2), record(3))
    token = review_import(services, workspace.slug, file).expect
    first = apply_import(services, workspace.slug, file, expect=token)
    edit_card(services, workspace.slug, "mem-0001", 1, CardFields(detail="corretto a mano"))
    delete_card(services, workspace.slug, "mem-0003", 1)
    before = written(services, workspace.slug)

    again = apply_import(services, workspace.slug, file, expect=token)
    anew = take(services, workspace.slug, file)

    assert outcomes(again) == outcomes(first)
    assert outcomes(anew) == [(number, KNOWN, f"mem-{number:04d}") for number in (1, 2, 3)]
    assert written(services, workspace.slug) == before


def test_ones_own_export_changes_nothing_and_brings_nothing_back(
    services: Services, workspace: Workspace, file: Path
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    export_registry(services, workspace.slug, file)
    edit_card(services, workspace.slug, "mem-0001", 1, CardFields(detail="corretto dopo"))
    delete_card(services, workspace.slug, "mem-0002", 1)
    before = written(services, workspace.slug)

    report = take(services, workspace.slug, file)

    assert outcomes(report) == [(number, KNOWN, f"mem-{number:04d}") for number in (1, 2, 3)]
    assert [bool(line.warnings) for line in report.records] == [True, True, False]
    assert written(services, workspace.slug) == before


def test_what_the_registry_says_already_gets_a_source_and_no_revision(
    services: Services, workspace: Workspace, file: Path
) -> None:
    promote(services, workspace.slug, [ABLATION])
    write(
        file,
        record(7, subject=" ABLAZIONE.", detail=ABLATION["detail"], links=requires(8)),
        record(8, links=requires(7)),
    )

    report = take(services, workspace.slug, file)

    assert outcomes(report) == [(1, ADDED, "mem-0001"), (2, CREATED, "mem-0002")]
    assert "does not get the links" in report.records[0].warnings[0]
    shown = show_card(services, workspace.slug, "mem-0001")
    assert (shown.card.revision, shown.sources) == (1, ("s1:seq:1", "import:old/mem-0007"))
    assert links(services, workspace.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}


@pytest.mark.parametrize("broken_after", [1, 2])
def test_an_import_that_broke_off_goes_on_with_the_same_token(
    services: Services, workspace: Workspace, file: Path, broken_after: int
) -> None:
    write(file, *(record(number, links=requires(number + 1) if number % 2 else []) for number in range(1, 7)), b"{")
    token = review_import(services, workspace.slug, file).expect
    told: list[int] = []

    def break_off(count: int) -> None:
        told.append(count)
        if len(told) == broken_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_import(services, workspace.slug, file, expect=token, batch=2, progress=break_off)
    assert written(services, workspace.slug)["cards"] == 2 * broken_after

    resumed = apply_import(services, workspace.slug, file, expect=token, batch=2)

    assert outcomes(resumed) == [(number, CREATED, f"mem-{number:04d}") for number in range(1, 7)]
    counts = written(services, workspace.slug)
    assert (counts["cards"], counts["sources"], counts["revisions"]) == (6, 6, 6)
    assert links(services, workspace.slug)["mem-0005"] == ["mem-0006"]


def test_cards_that_link_to_one_another_come_in_together(services: Services, workspace: Workspace, file: Path) -> None:
    """In batches of one, across the whole file, in a circle, and to oneself."""
    write(file, record(1, links=requires(4)), record(2), record(3, links=requires(3)), record(4, links=requires(1)))
    told: list[int] = []

    take(services, workspace.slug, file, batch=1, progress=told.append)

    assert told == [2, 1, 1]
    assert sorted(map(tuple, links(services, workspace.slug).values())) == [(), (), ("mem-0001",), ("mem-0002",)]


def test_a_link_to_what_is_not_there_is_left_out_and_told(services: Services, workspace: Workspace, file: Path) -> None:
    write(file, record(2))
    take(services, workspace.slug, file)
    lost = [{"relation": "related", "target": target} for target in ("seq:4", "mem_000009", "mem-0001")]
    write(
        file, record(1, id="mem_000001", links=[*requires(2), *lost]), record(5, links=requires(6)), record(6, type="x")
    )

    report = take(services, workspace.slug, file)

    assert [len(line.warnings) for line in report.records] == [3, 1]
    assert links(services, workspace.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"], "mem-0003": []}


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda s, w, f: write(f, record(1), record(2), record(3)), id="the file grew"),
        pytest.param(lambda s, w, f: write(f, record(1, detail="altro"), record(2)), id="a text changed"),
        pytest.param(
            lambda s, w, f: add_card(s, w, CardFields(subject="concetto 2", detail="regola numero 2")),
            id="the registry says it by now",
        ),
        pytest.param(
            lambda s, w, f: change(s, w, "UPDATE workspaces SET default_schema = 'other'"), id="another default schema"
        ),
    ],
)
def test_nothing_but_what_was_reviewed_is_applied(
    services: Services, workspace: Workspace, file: Path, tamper: Any
) -> None:
    placed = record(1, dependencies=[{"database": "cardio", "table": "t"}])
    reviewed = review_import(services, workspace.slug, write(file, placed, record(2)))
    tamper(services, workspace.slug, file)
    before = written(services, workspace.slug)

    with pytest.raises(ImportChanged):
        apply_import(services, workspace.slug, file, expect=reviewed.expect)
    with pytest.raises(BadInput):
        apply_import(services, workspace.slug, file, expect="")

    assert written(services, workspace.slug) == before


def test_a_registry_that_changes_between_batches_stops_the_import_there(
    services: Services, workspace: Workspace, file: Path
) -> None:
    reviewed = review_import(services, workspace.slug, write(file, record(1), record(2)))

    with pytest.raises(ImportChanged, match="line 2"):
        apply_import(
            services,
            workspace.slug,
            file,
            expect=reviewed.expect,
            batch=1,
            progress=lambda _: add_card(
                services, workspace.slug, CardFields(subject="concetto 2", detail="regola numero 2")
            ),
        )

    assert outcomes(take(services, workspace.slug, file)) == [(1, KNOWN, "mem-0001"), (2, ADDED, "mem-0002")]


BAD_RECORDS: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "a table of an old registry": (record(9, type="table_promoted", id="mem_000007", source="x"), "not_reusable"),
    "an exemplar": (record(9, kind="exemplar", type="exemplar"), "not_reusable"),
    "a memory of another kind": (record(9, kind="evidence"), "not_reusable"),
    "a table's name": (record(9, subject="public.fact_procedure"), "table_name"),
    "a card that was deleted": (record(9, status="deleted"), "not_active"),
    "an unknown field": (record(9, colour="red"), "unknown_field"),
    "an unknown field of a link": (record(9, links=[{**requires(1)[0], "weight": 1}]), "unknown_field"),
    "no id": (record(9, id=...), "shape"),
    "no workspace": (record(9, workspace=...), "shape"),
    "no type": (record(9, type=...), "shape"),
    "an empty subject": (record(9, subject=" . "), "shape"),
    "a NUL": (record(9, detail="a\x00b"), "shape"),
    "half a pair": (record(9, rationale="a\ud83db"), "shape"),
    "half a pair in what is only kept": (
        record(9, sources=[{"provenance": "import", "decided_at": "2026-01-01T00:00:00Z", "decided_by": "x",
                            "via": "cli", "imported": {"a\ud83d": 1}}]), "shape",
    ),
    "a column without table": (record(9, dependencies=[{"database": "d", "column": "c"}]), "shape"),
    "a format to come": (record(9, format=2), "shape"),
    "a time without offset": (record(9, created_at="2026-01-01T00:00:00"), "shape"),
    "the same card again": (record(1, subject="altro"), "duplicate"),
    "the same text again": (record(9, subject="CONCETTO  1", detail="Regola numero 1."), "duplicate"),
    "a list": (b"[1]", "shape"),
    "no JSON": (b'{"id": ', "not_json"),
    "NaN": (b'{"id": NaN}', "not_json"),
    "Latin-1": (b'{"id": "\xe0"}', "not_utf8"),
    "very deep": (b"[" * 100_000, "too_deep"),
    "very long": (b'{"id": "' + b"x" * MAX_LINE_BYTES + b'"}', "too_long"),
}  # fmt: skip


def test_every_line_that_cannot_be_taken_is_told_and_kept(services: Services, workspace: Workspace, file: Path) -> None:
    write(file, record(1), b"", *(item for item, _ in BAD_RECORDS.values()), record(2))

    report = take(services, workspace.slug, file)

    reasons = {name: bad.reason for name, bad in zip(BAD_RECORDS, report.quarantined, strict=True)}
    assert reasons == {name: reason for name, (_, reason) in BAD_RECORDS.items()}
    assert outcomes(report) == [(1, CREATED, "mem-0001"), (len(BAD_RECORDS) + 3, CREATED, "mem-0002")]
    kept = rows(services, workspace.slug, QUARANTINE)
    assert [(row[0], row[1], row[3]) for row in kept] == [
        (bad.line_number, bad.reason, "memory_reviewer") for bad in report.quarantined
    ]
    assert all(bad.message.isprintable() for bad in report.quarantined)
    measure = measure_cards(services, workspace.slug)  # what the UI shows
    assert (measure.refused, len(measure.newest_refused)) == (len(kept), min(len(kept), SHOWN))
    assert max(len(row[2]) for row in kept) == 64 * 1024
    take(services, workspace.slug, file)
    assert rows(services, workspace.slug, QUARANTINE) == kept


def test_a_file_without_its_last_newline_is_whole(services: Services, workspace: Workspace, file: Path) -> None:
    file.write_bytes(json.dumps(record(1)).encode())
    assert outcomes(review_import(services, workspace.slug, file)) == [(1, CREATED, None)]
    file.write_bytes(b"")
    assert outcomes(take(services, workspace.slug, file)) == []


def test_a_file_that_cannot_be_read(services: Services, workspace: Workspace, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(BadRegistryFile):
            review_import(services, workspace.slug, place)


def test_an_unknown_or_retired_workspace_takes_nothing(services: Services, workspace: Workspace, file: Path) -> None:
    reviewed = review_import(services, workspace.slug, write(file, record(1)))
    retire(services, workspace.slug)

    with pytest.raises(WorkspaceRetired):
        apply_import(services, workspace.slug, file, expect=reviewed.expect)
    with pytest.raises(UnknownWorkspace):
        review_import(services, "t-never-made", file)
    assert export_registry(services, workspace.slug, file).cards == 0


def test_an_imported_card_is_a_memory_like_any_other(services: Services, workspace: Workspace, file: Path) -> None:
    place = {"database": "cardio", "table": "t"}
    write(file, record(1, dependencies=[place, place], concepts=["A", "a "], tables=["t"], question_context="chi?"))

    take(services, workspace.slug, file)

    card = show_card(services, workspace.slug, "mem-0001").card
    assert (card.tables, card.concepts, card.question_context) == ((), ("A",), "chi?")
    assert [place.path() for place in card.dependencies] == ["cardio/public/t"]
    assert card.equivalent_to(
        CardContent(
            type="concept_clarified",
            subject="concetto 1",
            detail="regola numero 1",
            dependencies=(Dependency(database="cardio", schema_="public", table="t"),),
        )
    )
