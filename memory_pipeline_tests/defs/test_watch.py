"""Who is told when a check starts to fail, and how all workspaces are at a glance."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr

from memory_pipeline.core.errors import AlertFailed
from memory_pipeline.core.workspace import Workspace, WorkspaceStatus
from memory_pipeline.defs.assets.health import every_workspace_is_well, failing_checks, workspace_health
from memory_pipeline.defs.reporting import report_checks
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces, restore_workspace, retire_workspace
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import QUIET, metadata
from memory_pipeline_tests.defs.ticks import tick
from memory_pipeline_tests.flows import ABLATION, promote, with_settings


class _Webhook(ThreadingHTTPServer):
    """A webhook on loopback: keeps what it was told, answers as it is set to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[list[dict[str, Any]]] = []
        self.answer = 204

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?token=hush"


class _Handler(BaseHTTPRequestHandler):
    server: _Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.answer == 204:
            self.server.told.append(body["alerts"])
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def webhook() -> Iterator[_Webhook]:
    """A real server."""
    with _Webhook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _evaluate(instance: dg.DagsterInstance, passed: bool, workspace: str = "w1", check: str = "no_orphans") -> None:
    result = dg.AssetCheckResult(
        asset_key=dg.AssetKey("memory_collection"),
        check_name=check,
        passed=passed,
        description="well" if passed else "1 orphan",
    )
    report_checks(instance, workspace, [result])


def test_people_are_told_once_when_a_check_starts_to_fail(
    services: Services, instance: dg.DagsterInstance, webhook: _Webhook, tmp_path: Path
) -> None:
    file = tmp_path / "told.jsonl"
    keep = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = shlex.join([sys.executable, "-c", keep])
    _evaluate(instance, passed=False, workspace="before")
    with with_settings(services, alert_webhook=SecretStr(webhook.url), alert_command=command) as told:
        cursor = tick("alerts_sensor", instance, told).cursor

        def watch() -> list[tuple[str, str]]:
            nonlocal cursor
            seen = len(webhook.told)
            cursor = tick("alerts_sensor", instance, told, cursor).cursor or cursor
            return [(each["workspace"], each["check"]) for alerts in webhook.told[seen:] for each in alerts]

        assert watch() == []
        for workspace in ("w1", "w2"):
            _evaluate(instance, passed=False, workspace=workspace)
        _evaluate(instance, passed=True, check="vector_configuration")
        assert watch() == [("w1", "no_orphans"), ("w2", "no_orphans")]
        assert len(webhook.told) == 1, "a tick tells all at once"
        _evaluate(instance, passed=False)
        assert watch() == [], "it still fails"
        _evaluate(instance, passed=True)
        _evaluate(instance, passed=False, workspace="w2")
        assert watch() == []
        _evaluate(instance, passed=False)
        assert watch() == [("w1", "no_orphans")], "it had passed in between"
        _evaluate(instance, passed=False, workspace="w3")
        _evaluate(instance, passed=True, workspace="w3")
        assert watch() == [], "it passes again already"

        _evaluate(instance, passed=False, workspace="w4")
        webhook.answer = 500
        with pytest.raises(AlertFailed) as raised:
            tick("alerts_sensor", instance, told, cursor)
        assert "hush" not in str(raised.value)
        webhook.answer = 204
        assert watch() == [("w4", "no_orphans")], "the next tick tells what the last one could not"

    by_command = [json.loads(text)["alerts"] for text in file.read_text().splitlines()]
    assert [[each["workspace"] for each in alerts] for alerts in by_command] == [["w1", "w2"], ["w1"], ["w4"], ["w4"]]
    (alert,) = by_command[1]
    assert (alert["asset"], alert["severity"], alert["description"]) == ("memory_collection", "ERROR", "1 orphan")


@pytest.mark.parametrize("command", ["/no/such/program", "false", "unclosed 'quote"])
def test_a_command_that_does_not_take_an_alert_fails_the_tick(
    services: Services, instance: dg.DagsterInstance, command: str
) -> None:
    cursor = tick("alerts_sensor", instance, services).cursor
    _evaluate(instance, passed=False)
    with with_settings(services, alert_command=command) as told, pytest.raises(AlertFailed, match="ALERT_COMMAND"):
        tick("alerts_sensor", instance, told, cursor)
    assert "1 checks started to fail" in tick("alerts_sensor", instance, services, cursor).told


@pytest.fixture
def alone(services: Services, workspace: Workspace) -> Iterator[str]:
    """The only workspace that is not retired: what other tests left is not looked at."""
    others = [
        each.slug
        for each in list_workspaces(services)
        if each.slug != workspace.slug and each.status is WorkspaceStatus.ACTIVE
    ]
    for slug in others:
        retire_workspace(services, slug)
    yield workspace.slug
    for slug in others:
        restore_workspace(services, slug)


def test_a_workspace_that_falls_ill_is_seen_at_a_glance_and_so_is_its_recovery(
    services: Services, alone: str, instance: dg.DagsterInstance
) -> None:
    slug = alone
    instance.add_dynamic_partitions("workspace", [slug])
    promote(services, slug, [ABLATION])
    drain(services, slug)

    well = tick("health_sensor", instance, services)
    assert well.told.endswith("all well")
    assert tick("health_sensor", instance, services, well.cursor).cursor in (None, well.cursor)
    with services.database.transaction(Role.OWNER, slug) as tx:
        tx.execute("UPDATE cards SET revision = revision + 1, updated_at = now() - interval '1 hour'")
        tx.execute("UPDATE propagations SET created_at = now() - interval '1 hour' WHERE state = 'pending'")

    ill = tick("health_sensor", instance, services, well.cursor)

    assert ill.told == f"not well: {slug}"
    assert failing_checks(instance) == {slug: ["index_is_fresh", "propagation_flows"]}
    told = metadata(instance, "workspace_health")
    assert (told["unwell"], told["pending"]) == (1, 1)
    assert told["longest_lag_seconds"] > 3500
    assert told["preview"][0]["workspace"] == slug
    assert "1 card is not in the index" in told["preview"][0]["how it is"]

    drain(services, slug, hurry=True)
    tick("health_sensor", instance, services, ill.cursor)
    assert failing_checks(instance) == {}

    _evaluate(instance, passed=False, workspace=slug)
    outcome = dg.materialize(
        [workspace_health, every_workspace_is_well],
        instance=instance,
        run_config=QUIET,
        resources={"services": services},
    )
    (summary,) = outcome.get_asset_check_evaluations()
    assert (summary.passed, summary.description) == (False, f"not well: {slug}")
    retire_workspace(services, slug)
    assert tick("health_sensor", instance, services, None).told.endswith("all well")
