"""The shape of the Dagster project, and that loading it is quiet and touches nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from memory_pipeline.definitions import defs
from memory_pipeline.defs.resources import ServicesFromEnvironment
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.snapshot import FILE, shape, written

_LOAD = """
import socket
def refuse(*_):
    raise AssertionError("loading the definitions opened a connection")
socket.socket.connect = socket.socket.connect_ex = refuse
from memory_pipeline.definitions import defs
assert defs.resolve_all_job_defs()
"""


def test_the_graph_is_the_one_that_was_agreed() -> None:
    assert written(shape()) == FILE.read_text(encoding="utf-8"), (
        "the graph has changed: look at it, then run python -m memory_pipeline_tests.defs.snapshot"
    )


def _run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that knows no servers."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_", "DAGSTER_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_loading_connects_to_nothing_and_warns_of_nothing(tmp_path: Path) -> None:
    loaded = _run(sys.executable, "-W", "always", "-c", _LOAD, folder=tmp_path)

    assert loaded.returncode == 0, loaded.stderr
    assert "memory_pipeline" not in loaded.stderr
    assert list(tmp_path.iterdir()) == []


def test_dagster_validates_the_definitions(tmp_path: Path) -> None:
    command = "import sys; from dagster._cli import main; sys.argv = ['dagster', *sys.argv[1:]]; main()"
    checked = _run(
        sys.executable, "-c", command, "definitions", "validate", "-m", "memory_pipeline.definitions", folder=tmp_path
    )

    assert checked.returncode == 0, checked.stderr
    assert "Validation successful" in checked.stderr + checked.stdout
    assert "memory_pipeline/" not in checked.stderr


@pytest.mark.parametrize(
    "spec",
    sorted(defs.resolve_all_asset_specs(), key=lambda spec: spec.key),
    ids=lambda spec: spec.key.to_user_string(),
)
def test_every_asset_tells_what_it_is(spec: dg.AssetSpec) -> None:
    assert spec.owners
    assert spec.group_name
    assert spec.code_version
    assert 1 <= len(spec.kinds) <= 3
    assert spec.description
    assert len(spec.description) > 80
    assert "docs" in spec.metadata
    assert set(spec.tags) & {"layer"}
    if spec.key == dg.AssetKey("workspace_health"):
        assert spec.partitions_def is None
    else:
        assert spec.partitions_def == dg.DynamicPartitionsDefinition(name="workspace")


def test_the_columns_that_are_told_are_those_of_the_database(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT c.relname AS relation, a.attname AS name, format_type(t.oid, NULL) AS type
            FROM pg_attribute AS a
            JOIN pg_class AS c ON c.oid = a.attrelid AND c.relnamespace = 'memory'::regnamespace
            JOIN pg_type AS base ON base.oid = a.atttypid
            JOIN pg_type AS t ON t.oid = CASE WHEN base.typbasetype <> 0 THEN base.typbasetype ELSE base.oid END
            WHERE a.attnum > 0 AND NOT a.attisdropped
            """
        ).fetchall()
    real = {(f"memory.{row['relation']}", row["name"]): row["type"] for row in rows}
    told = {
        (spec.metadata["dagster/table_name"], column.name): column.type
        for spec in defs.resolve_all_asset_specs()
        if "dagster/table_name" in spec.metadata
        for column in spec.metadata["dagster/column_schema"].columns
    }
    assert len(told) > 40
    assert {key: real.get(key) for key in told} == told


def test_what_is_told_of_the_documentation_is_there() -> None:
    pages = {spec.metadata["docs"].value for spec in defs.resolve_all_asset_specs()}
    assert [page for page in sorted(pages) if not (FILE.parents[2] / page).is_file()] == []


def test_a_run_opens_nothing_before_it_needs_to_and_closes_what_it_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMORY_STATE", str(tmp_path))
    closed: list[Services] = []
    monkeypatch.setattr(Services, "close", lambda services: closed.append(services))  # noqa: PLW0108 - bound

    with dg.build_resources({"services": ServicesFromEnvironment()}) as resources:
        services = resources.services
        assert services.via == "dagster"
        assert services.settings.state == tmp_path
        assert closed == []

    assert closed == [services]


def test_nothing_of_the_servers_can_be_set_from_the_launchpad() -> None:
    assert ServicesFromEnvironment.model_fields.keys() == set()
