"""Metadata that people read in the UI.

Text of a ledger or a card is anybody's text. It goes into cells of tables, which the UI shows as they are, cleaned by
`core.display`, or into Markdown, where each text is escaped by `core.markdown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import dagster as dg

from memory_pipeline.core.display import plain

Cell = str | int | float | bool | datetime | None


class Status(StrEnum):
    """What a run of an asset came to."""

    DONE = "done"
    NOTHING_TO_DO = "nothing to do"
    RETIRED = "retired"
    REPORTED = "reported"


class Page(NamedTuple):
    """What an asset's page shows of a workspace as it is, whoever brought it there."""

    data_version: str
    figures: Mapping[str, dg.RawMetadataValue]
    preview: dg.TableMetadataValue

    def result(self, status: Status, **run: dg.RawMetadataValue) -> dg.MaterializeResult[None]:
        """What a run returns: the page, and what the run itself did."""
        return result(status, data_version=self.data_version, preview=self.preview, **{**run, **self.figures})


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> dg.TableMetadataValue:
    """A table; one without rows keeps its columns. A name such as `cards:int` gives a column its type."""
    named = [column.partition(":") for column in columns]
    return dg.TableMetadataValue(
        schema=dg.TableSchema([dg.TableColumn(name, kind or "string") for name, _, kind in named]),
        records=[
            dg.TableRecord({name: _cell(value) for (name, _, _), value in zip(named, row, strict=True)}) for row in rows
        ],
    )


def result(
    status: Status, *, data_version: str, preview: dg.TableMetadataValue, **metadata: dg.RawMetadataValue
) -> dg.MaterializeResult[None]:
    """What an asset returns on every path: what it came to, its figures, and a table to look at."""
    return dg.MaterializeResult(
        data_version=dg.DataVersion(data_version), metadata={"status": status.value, **metadata, "preview": preview}
    )


RETIRED = Page(Status.RETIRED.value, {}, table(("note",), []))
"""What every asset of a retired workspace shows: its rows stay, nothing is done with them."""


def _cell(value: Cell) -> str | int | float | bool | None:
    match value:
        case str():
            return plain(value)
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return value
