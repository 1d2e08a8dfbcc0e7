"""The shape of the Dagster project as one JSON file, so that a change of it is seen in review.

`python -m memory_pipeline_tests.defs.snapshot` writes `graph.json` anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg

from memory_pipeline.definitions import defs

FILE = Path(__file__).with_name("graph.json")


def shape() -> dict[str, Any]:
    """Assets, checks, jobs, sensors, schedules and resources, by name."""
    repository = defs.get_repository_def()
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    return {
        "assets": {spec.key.to_user_string(): _asset(spec) for spec in defs.resolve_all_asset_specs()},
        "checks": {
            f"{key.asset_key.to_user_string()}:{key.name}": {
                "blocking": spec.blocking,
                "partitions": _partitions(spec.partitions_def),
            }
            for checks in repository.asset_checks_defs_by_key.values()
            for spec in checks.check_specs
            for key in [spec.key]
        },
        "jobs": {
            job.name: {
                "nodes": sorted(node.name for node in job.nodes),
                "partitions": _partitions(job.partitions_def),
                "executor": job.executor_def.name,
            }
            for job in jobs
        },
        "sensors": {
            sensor.name: {
                "default_status": sensor.default_status.value,
                "seconds": sensor.minimum_interval_seconds,
                "targets": sorted(target.job_name for target in sensor.targets),
            }
            for sensor in repository.sensor_defs
        },
        "schedules": {schedule.name: schedule.cron_schedule for schedule in repository.schedule_defs},
        "resources": sorted(repository.get_top_level_resources()),
    }


def written(graph: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(graph, indent=2, sort_keys=True) + "\n"


def _asset(spec: dg.AssetSpec) -> dict[str, Any]:
    return {
        "deps": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
        "group": spec.group_name,
        "kinds": sorted(spec.kinds),
        "owners": list(spec.owners),
        "code_version": spec.code_version,
        "partitions": _partitions(spec.partitions_def),
        "about": (spec.description or "").splitlines()[0],
    }


def _partitions(definition: dg.PartitionsDefinition[str] | None) -> str | None:
    return definition.name if isinstance(definition, dg.DynamicPartitionsDefinition) else None


if __name__ == "__main__":
    FILE.write_text(written(shape()), encoding="utf-8")
