"""compose.yaml: valid, tight, and each container's command does what it is there for, here outside a container."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml
from psycopg import sql

from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import DAGSTER_ROLE
from memory_pipeline.store.database import Role, server_conninfo
from memory_pipeline_tests.composed import TOP, Composed, compose
from memory_pipeline_tests.flows import closed_port

SERVERS = {"postgres", "qdrant", "ollama"}
OURS = {"migrate", "code", "webserver", "daemon"}
ONE_SHOT = {"migrate", "model"}
WAIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def test_the_file_follows_the_schema_of_compose() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    told = subprocess.run(
        [*command, str(TOP / "compose.yaml")], capture_output=True, text=True, check=False, timeout=60
    )

    assert told.returncode == 0, told.stdout


def test_every_port_is_on_loopback(services: dict[str, dict[str, Any]]) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert ports.keys() == SERVERS | {"webserver"}
    assert all(port.startswith("127.0.0.1:") for published in ports.values() for port in published)


def test_every_image_is_pinned_by_version(services: dict[str, dict[str, Any]]) -> None:
    tags = {name: service["image"].partition(":")[2] for name, service in services.items()}

    assert services.keys() == SERVERS | ONE_SHOT | OURS
    assert all(any(sign.isdigit() for sign in tag) for tag in tags.values())
    assert tags["qdrant"] == "v1.19.0"
    assert tags["model"] == tags["ollama"]


def test_secrets_come_from_files_and_each_service_has_only_its_own(services: dict[str, dict[str, Any]]) -> None:
    secrets = compose()["secrets"]
    held = {name: set(service.get("secrets", ())) for name, service in services.items()}

    assert all(secret.keys() == {"file"} for secret in secrets.values())
    assert held["webserver"] == held["daemon"] == {DAGSTER_ROLE}
    assert "postgres" not in held["code"]
    assert held["migrate"] == {"postgres", DAGSTER_ROLE, *Role}
    assert set().union(*held.values()) == secrets.keys()
    for service in services.values():
        for name in service.get("environment", {}):
            assert not name.endswith(("PASSWORD", "API_KEY", "PG_URL"))


def test_everything_that_stays_up_says_when_it_is_well_and_starts_again(services: dict[str, dict[str, Any]]) -> None:
    for name in services.keys() - ONE_SHOT:
        assert services[name]["healthcheck"]["test"][0] == "CMD"
        assert services[name]["restart"] == "unless-stopped"


def test_everything_has_a_limit_of_memory_and_processors(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        assert service["deploy"]["resources"]["limits"].keys() >= {"cpus", "memory"}


def test_the_start_order_has_no_gap(services: dict[str, dict[str, Any]]) -> None:
    waits = {
        name: {needed: condition["condition"] for needed, condition in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }

    assert waits["migrate"] == {"postgres": "service_healthy"}
    assert waits["model"] == {"ollama": "service_healthy"}
    assert waits["code"] == {
        "migrate": "service_completed_successfully",
        "model": "service_completed_successfully",
        "qdrant": "service_healthy",
    }
    assert waits["webserver"] == waits["daemon"] == {"code": "service_healthy"}


def test_our_own_containers_have_no_rights_and_a_root_that_is_read_only(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
        assert services[name]["build"] == "."


def test_the_image_is_pinned_unprivileged_and_built_in_two_stages() -> None:
    lines = [line.split() for line in (TOP / "Dockerfile").read_text(encoding="utf-8").splitlines()]
    bases = [line[1] for line in lines if line[:1] == ["FROM"]]
    users = [line[1] for line in lines if line[:1] == ["USER"]]

    assert len(bases) == 2
    assert all(base.startswith("python:3.") and base.count(".") == 2 for base in bases)
    assert users == ["10001:10001"]


def test_what_the_image_copies_is_all_that_the_wheel_is_built_of() -> None:
    kept = {line[1:] for line in (TOP / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = (TOP / "pyproject.toml").read_text(encoding="utf-8")

    assert all((TOP / name).exists() for name in kept)
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "memory_pipeline", "sql"} <= kept
    for name in (path.name for path in TOP.glob("*.yaml") if f'"{path.name}" = ' in project):
        assert name in kept


def test_the_workspace_of_compose_names_the_code_location_that_it_runs(services: dict[str, dict[str, Any]]) -> None:
    (location,) = yaml.safe_load((TOP / "workspace.compose.yaml").read_text(encoding="utf-8"))["load_from"]
    command = services["code"]["command"]

    assert location["grpc_server"]["host"] == {"env": "MEMORY_CODE_HOST"}
    assert location["grpc_server"]["port"] == {"env": "MEMORY_CODE_PORT"}
    for name in ("webserver", "daemon"):
        assert services[name]["environment"]["MEMORY_CODE_HOST"] == "code"
        assert services[name]["environment"]["MEMORY_CODE_PORT"] == command[command.index("--port") + 1]


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_database(settings: Settings) -> Iterator[str]:
    """The name of a registry's database that does not exist yet."""
    name = f"composed_{uuid.uuid4().hex[:8]}"
    yield name
    with _admin(settings, "postgres") as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.mark.embedded
def test_migrate_makes_a_registry_out_of_nothing_and_a_second_time_finds_it_made(
    settings: Settings, tmp_path: Path, fresh_database: str
) -> None:
    composed = Composed(settings, tmp_path)
    composed.services["migrate"]["environment"] = {
        **composed.services["migrate"]["environment"],
        "MEMORY_POSTGRES_DATABASE": fresh_database,
    }

    told = [composed.run("migrate", composed.command("migrate")) for _ in range(2)]

    assert [(one.returncode, one.stderr) for one in told] == [(0, ""), (0, "")]
    assert "applied 001_registry" in told[0].stdout
    assert "the schema is current" in told[1].stdout
    with _admin(settings, fresh_database) as admin:
        assert admin.execute("SELECT count(*) FROM memory.workspaces").fetchone() == (0,)


@pytest.mark.embedded
@pytest.mark.slow
def test_code_location_webserver_and_daemon_work_together_as_compose_starts_them(
    settings: Settings, tmp_path: Path
) -> None:
    code_port, web_port = closed_port(), closed_port()
    composed = Composed(settings, tmp_path, MEMORY_CODE_PORT=str(code_port))
    ports = {"code": code_port, "webserver": web_port, "daemon": None}
    for name, port in ports.items():
        assert composed.run(name, composed.check(name, port=port)).returncode != 0, "nothing runs yet"
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, port in ports.items():
            started[name] = composed.start(name, port)
            _until_well(composed, name, port, started[name])

        answer = httpx.post(f"http://127.0.0.1:{web_port}/graphql", json={"query": _STATE}, timeout=60).json()["data"]
        (location,) = answer["workspaceOrError"]["locationEntries"]
        assert location["name"] == "memory_pipeline"
        assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation"
        assert "memory_collection" in {node["assetKey"]["path"][-1] for node in answer["assetNodes"]}
        assert answer["instance"]["daemonHealth"]["allDaemonStatuses"]
    finally:
        codes = {name: _stop(process) for name, process in reversed(started.items())}
    assert codes == dict.fromkeys(ports, 0), "a signal ends each of them in order"


_STATE = """{
  workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } }
  assetNodes { assetKey { path } }
  instance { daemonHealth { allDaemonStatuses { daemonType healthy } } }
}"""


def _until_well(composed: Composed, name: str, port: int | None, process: subprocess.Popen[bytes]) -> None:
    """Ask as the container's health check does, until it says that the service is well."""
    deadline = time.monotonic() + WAIT_SECONDS
    while composed.run(name, composed.check(name, port=port)).returncode != 0:
        assert process.poll() is None, composed.log(name).read_text()
        assert time.monotonic() < deadline, composed.log(name).read_text()


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _admin(settings: Settings, database: str) -> psycopg.Connection[Any]:
    password = settings.secret("postgres").get_secret_value()
    return psycopg.connect(
        server_conninfo(settings, user="postgres", password=password, database=database), autocommit=True
    )
