"""Cards that point to each other, each group in a database of its own, so that one workspace holds many stories."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memory_pipeline.core.cards import CardContent, CardKind, Link, Relation, card_id
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.store import cards
from memory_pipeline.store.database import Role


@dataclass(frozen=True)
class Planted:
    """A card to plant: in which database it holds, what it says, and `requires b`, `supersedes c`."""

    database: str
    detail: str = ""
    links: Sequence[str] = ()
    kind: CardKind = CardKind.MEMORY
    fields: Mapping[str, object] = field(default_factory=dict)


@contextlib.contextmanager
def open_workspace(services: Services) -> Iterator[str]:
    """A workspace for several tests; its collections go at the end."""
    slug = f"t-{uuid.uuid4().hex[:12]}"
    create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="none"))
    yield slug
    with services.database.transaction(Role.INDEXER, slug) as tx:
        rows = tx.execute("SELECT collection FROM collections").fetchall()
    for row in rows:
        services.index.drop(row["collection"])


def plant(services: Services, workspace: str, planted: Mapping[str, Planted]) -> dict[str, str]:
    """Insert cards past the gate, as the reviewer, and return their ids by name."""
    ids = {name: card_id(number) for number, name in enumerate(planted, start=1)}
    with services.database.transaction(Role.REVIEWER, workspace) as tx:
        for name, card in planted.items():
            cards.insert(tx, workspace, ids[name], _content(name, card, ids), card.kind)
    return ids


def _content(name: str, card: Planted, ids: Mapping[str, str]) -> CardContent:
    fields = {"type": "concept_clarified" if card.kind is CardKind.MEMORY else card.kind.value, **card.fields}
    parts = (link.split(maxsplit=1) for link in card.links)
    return CardContent(
        subject=name,
        detail=card.detail or f"regola di {name}",
        dependencies=(Dependency(database=card.database),) if card.database else (),
        links=tuple(Link(relation=Relation(relation), target=ids.get(target, target)) for relation, target in parts),
        **fields,
    )
