"""What Dagster itself marks as stale."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from memory_pipeline.definitions import defs


def statuses(instance: dg.DagsterInstance, workspace: str) -> dict[str, str]:
    """Each asset of a workspace that is not fresh: missing or stale, as the UI says."""
    graph = defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    partitioned = [key for key in graph.materializable_asset_keys if graph.get(key).is_partitioned]
    told = {key.to_user_string(): resolver.get_status(key, workspace).value.lower() for key in sorted(partitioned)}
    return {asset: status for asset, status in told.items() if status != "fresh" and asset != "retrieval_quality"}
