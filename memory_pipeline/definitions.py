"""The one place where the Dagster project is put together, and where its policies are applied.

Loading it connects to nothing: connections are opened by what runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial

import dagster as dg

from memory_pipeline.defs import checks, jobs, schedules, sensors, upkeep, watch
from memory_pipeline.defs.assets.health import every_workspace_is_well, workspace_health
from memory_pipeline.defs.assets.index import dense_embeddings, memory_collection, sparse_embeddings
from memory_pipeline.defs.assets.ledger import effective_ledger, session_ledger, session_memories
from memory_pipeline.defs.assets.quality import quality_holds, retrieval_quality
from memory_pipeline.defs.assets.registry import memory_cards
from memory_pipeline.defs.resources import SERVICES, ServicesFromEnvironment

# Dagster copies each sensor that names its job with a parameter that it calls beta itself.
warnings.filterwarnings(
    "ignore", message="Parameter `owners` of initializer `SensorDefinition", category=dg.BetaWarning
)

OWNERS = ["team:memory_pipeline"]

GROUPS = {
    "ledger": [session_ledger, effective_ledger, session_memories],
    "registry": [memory_cards],
    "index": [dense_embeddings, sparse_embeddings, memory_collection],
    "quality": [retrieval_quality],
    "control_room": [workspace_health],
}
"""Assets by their group in the graph."""


def _assets() -> Iterator[dg.AssetsDefinition]:
    """Every asset, with its group and its owners."""
    for group, assets in GROUPS.items():
        for asset in assets:
            yield asset.map_asset_specs(partial(dg.AssetSpec.replace_attributes, group_name=group, owners=OWNERS))


defs = dg.Definitions(
    assets=list(_assets()),
    asset_checks=[*checks.CHECKS, quality_holds, every_workspace_is_well],
    jobs=[*jobs.JOBS, *upkeep.JOBS],
    sensors=[*sensors.SENSORS, *watch.SENSORS],
    schedules=schedules.SCHEDULES,
    resources={
        SERVICES: ServicesFromEnvironment(),
        # Assets write for themselves. What the ops of a job hand back is for its caller, never for a file.
        "io_manager": dg.mem_io_manager,
    },
    # One process for a run: its steps share their connections, and the chain is nearly linear, so a process for each
    # step would add seconds and save none.
    executor=dg.in_process_executor,
)
