"""One request, as the handlers see it."""

from __future__ import annotations

from dataclasses import dataclass

from memory_pipeline.embedded.qdrant.answers import Answer
from memory_pipeline.embedded.qdrant.body import Json


@dataclass(frozen=True)
class Call:
    """The decoded parts of the path, the parsed body (null without one), and whether the caller waits for the write."""

    path: dict[str, str]
    body: Json
    wait: bool

    @property
    def collection(self) -> str:
        """The collection or alias in the path."""
        return self.path["name"]

    def updated(self, number: int) -> Answer:
        """The answer to a write. It is done before it is answered, whether the caller waits or not."""
        return {"operation_id": number, "status": "completed" if self.wait else "acknowledged"}
