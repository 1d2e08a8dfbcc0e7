"""One partition per workspace. Never one per card, session or question."""

from __future__ import annotations

import dagster as dg

WORKSPACE = dg.DynamicPartitionsDefinition(name="workspace")
"""Keys are slugs of workspaces. They are added by a sensor and never deleted: a retired workspace keeps its history."""
