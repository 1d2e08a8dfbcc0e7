"""What a collection in a cluster is made with reaches the server; the embedded one has a single node, and says so."""

from __future__ import annotations

import uuid

import pytest

from memory_pipeline.core.errors import IndexUnavailable
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.flows import with_settings

pytestmark = pytest.mark.embedded


def test_one_of_each_is_what_a_single_node_has(services: Services) -> None:
    name = f"spread-{uuid.uuid4().hex[:8]}"
    with with_settings(services, qdrant_shards=1, qdrant_replicas=1, qdrant_write_consistency=1) as one:
        one.index.create(name, dimensions=4)
        assert one.index.drop(name)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("qdrant_shards", "shard_number"),
        ("qdrant_replicas", "replication_factor"),
        ("qdrant_write_consistency", "write_consistency_factor"),
    ],
)
def test_more_than_one_node_is_asked_for_by_its_setting(services: Services, setting: str, told: str) -> None:
    name = f"spread-{uuid.uuid4().hex[:8]}"
    with with_settings(services, **{setting: 2}) as several, pytest.raises(IndexUnavailable, match=told):
        several.index.create(name, dimensions=4)
    assert services.index.shape(name) is None
