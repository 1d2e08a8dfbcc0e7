"""`memory-pipeline doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from memory_pipeline.harness.options import json_option, open_services
from memory_pipeline.harness.output import print_json, print_table

if TYPE_CHECKING:
    from memory_pipeline.operations.doctor import Finding
    from memory_pipeline.operations.services import Services


@click.command("doctor")
@click.option("-w", "--workspace", "slug", metavar="SLUG", help="Look at this workspace alone.")
@json_option
def doctor(slug: str | None, as_json: bool) -> int:
    """Look at servers, secrets, roles, schema, workspaces and Dagster's daemon, and say what to do.

    Exit code: 0 where nothing is ill (a warning is not), else that of the first thing that is: 20 secrets, roles,
    schema; 30 PostgreSQL; 31 Qdrant or a collection; 32 Ollama or its model; 50 an index; 60 Dagster.
    """
    from memory_pipeline.harness.contract import DoctorAnswer
    from memory_pipeline.operations.doctor import Diagnosis

    with open_services() as services:
        diagnosis = Diagnosis(findings=tuple(_findings(services, slug)))
    states = {finding.state for finding in diagnosis.findings}
    if as_json:
        status = next((state for state in ("ill", "unknown", "warning") if state in states), "well")
        print_json(DoctorAnswer(status=status, exit_code=diagnosis.exit_code, findings=diagnosis.findings))
        return diagnosis.exit_code
    print_table(
        "doctor",
        ("check", "workspace", "state", "found", "do"),
        [(each.check, each.workspace, each.state, each.told, each.do) for each in diagnosis.findings],
    )
    return diagnosis.exit_code


def _findings(services: Services, slug: str | None) -> Iterator[Finding]:
    from memory_pipeline.harness.control_room import daemon_findings
    from memory_pipeline.operations.doctor import diagnose, told_once

    yield from told_once(chain(diagnose(services, slug), daemon_findings(services.settings)))
