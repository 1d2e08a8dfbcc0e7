"""What is shipped: the wheel, the compose file, the files at the top level."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

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

    assert {"memory_pipeline/_deploy/dagster.yaml", "memory_pipeline/_deploy/workspace.yaml"} <= names
    for planned in sample.plan():
        assert f"memory_pipeline/harness/sample/{planned.workspace}/{planned.session}.jsonl" in names


def test_the_wheel_carries_no_tests(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if "tests" in name]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((TOP / "compose.yaml").read_text(encoding="utf-8"))
    return document


def test_compose_opens_ports_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]

    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_pins_every_image(compose: dict[str, Any]) -> None:
    tags = {name: service["image"].partition(":")[2] for name, service in compose["services"].items()}

    assert all(tags.values())
    assert "latest" not in tags.values()
    assert tags["qdrant"] == "v1.19.0"


def test_compose_takes_secrets_from_files_and_holds_none(compose: dict[str, Any]) -> None:
    assert all("file" in secret for secret in compose["secrets"].values())
    for service in compose["services"].values():
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
        for name in service.get("environment", {}):
            assert not name.endswith(("PASSWORD", "API_KEY"))


def test_every_server_of_compose_says_when_it_is_healthy(compose: dict[str, Any]) -> None:
    servers = {name for name, service in compose["services"].items() if "ports" in service}

    assert servers == {"postgres", "qdrant", "ollama"}
    assert all("healthcheck" in compose["services"][name] for name in servers)


def test_constraints_name_no_address() -> None:
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]

    assert pins
    assert all("==" in pin and "/" not in pin and "@" not in pin for pin in pins)
