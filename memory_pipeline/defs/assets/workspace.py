"""What all assets share: a partition per workspace, retries, named failures, and what a retired workspace gets."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from memory_pipeline.defs.failures import RETRY, named_failures
from memory_pipeline.defs.metadata import RETIRED, Status
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.defs.resources import SERVICES
from memory_pipeline.operations.measure import is_retired
from memory_pipeline.operations.services import Services

Derive = Callable[[dg.AssetExecutionContext, Services, str], dg.MaterializeResult[None]]


def workspace_asset(
    *,
    deps: Sequence[dg.AssetsDefinition] = (),
    kinds: set[str],
    code_version: str,
    metadata: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Callable[[Derive], dg.AssetsDefinition]:
    """Make an asset of a function `(context, services, workspace)`. Its docstring describes it in the UI.

    The function writes for itself and returns what it did; a repetition gives the same rows.
    """

    def decorate(derive: Derive) -> dg.AssetsDefinition:
        @dg.asset(
            name=derive.__name__,
            description=inspect.getdoc(derive),
            deps=deps,
            kinds=kinds,
            code_version=code_version,
            metadata=metadata,
            tags=tags,
            partitions_def=WORKSPACE,
            retry_policy=RETRY,
            required_resource_keys={SERVICES},
        )
        def compute(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
            services: Services = getattr(context.resources, SERVICES)
            with named_failures():
                if is_retired(services, context.partition_key):
                    return RETIRED.result(Status.RETIRED)
                return derive(context, services, context.partition_key)

        return compute

    return decorate
