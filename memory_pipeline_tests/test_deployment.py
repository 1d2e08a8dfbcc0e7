"""What is shipped: the wheel, the files at the top level. `test_compose` has the containers."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memory_pipeline.harness import sample

TOP = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(TOP)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_carries_every_migration_unchanged(wheel: zipfile.ZipFile) -> None:
    shipped = {
        Path(name).name: wheel.read(name)
        for name in wheel.namelist()
        if name.startswith("memory_pipeline/_deploy/sql/")
    }

    assert shipped == {file.name: file.read_bytes() for file in (TOP / "sql").glob("*.sql")}
    assert {"001_registry.sql", "002_hybrid_projection.sql"} <= shipped.keys()


def test_the_wheel_carries_the_dagster_files_and_the_sample(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())

    for name in ("dagster.yaml", "workspace.yaml", "workspace.compose.yaml"):
        assert f"memory_pipeline/_deploy/{name}" in names
    for planned in sample.plan():
        assert f"memory_pipeline/harness/sample/{planned.workspace}/{planned.session}.jsonl" in names


def test_the_wheel_carries_no_tests(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if "tests" in name]


def test_constraints_name_no_address() -> None:
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]

    assert pins
    assert all("==" in pin and "/" not in pin and "@" not in pin for pin in pins)
