"""The links of cards, turned round: they follow every change of a card, and nothing else changes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memory_pipeline.core.cards import Link, Relation
from memory_pipeline.core.errors import RoleRefused
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store import recall as store
from memory_pipeline.store.database import Role
from memory_pipeline_tests.operations.linked import Planted, open_workspace, plant

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def linked(services: Services) -> Iterator[str]:
    """Cards 2 and 3 supersede the first; 3 requires the second, and says so twice."""
    planted = {
        "old": Planted("db"),
        "new": Planted("db", links=["supersedes old"]),
        "newest": Planted("db", links=["supersedes old", "requires new", "requires new", "requires mem-0099"]),
    }
    with open_workspace(services) as slug:
        plant(services, slug, planted)
        yield slug


def links(services: Services, workspace: str) -> set[tuple[str, str, str]]:
    with services.database.transaction(Role.READER, workspace) as tx:
        rows = tx.execute("SELECT card_id, relation, target FROM card_links").fetchall()
    return {(row["card_id"], row["relation"], row["target"]) for row in rows}


def test_links_are_those_of_the_cards_through_every_change(services: Services, linked: str) -> None:
    before = {
        ("mem-0002", "supersedes", "mem-0001"),
        ("mem-0003", "supersedes", "mem-0001"),
        ("mem-0003", "requires", "mem-0002"),
        ("mem-0003", "requires", "mem-0099"),
    }
    assert links(services, linked) == before

    with services.database.transaction(Role.REVIEWER, linked) as tx:
        newest = cards.get_many(tx, linked, ["mem-0003"])["mem-0003"]
        cards.set_links(tx, newest, [Link(relation=Relation.RELATED, target="mem-0001")])
    assert links(services, linked) == {
        ("mem-0002", "supersedes", "mem-0001"),
        ("mem-0003", "related", "mem-0001"),
    }

    with services.database.transaction(Role.REVIEWER, linked) as tx:
        cards.set_links(tx, newest.model_copy(update={"revision": 2}), newest.links)
    assert links(services, linked) == before


def test_only_active_cards_supersede(services: Services, linked: str) -> None:
    def superseders() -> tuple[str, ...]:
        with services.database.transaction(Role.READER, linked) as tx:
            return store.read(tx, linked, 1, ["mem-0001"])["mem-0001"].superseded_by

    assert superseders() == ("mem-0003", "mem-0002"), "the newest first"
    with services.database.transaction(Role.REVIEWER, linked) as tx:
        tx.execute("UPDATE cards SET status = 'deleted', revision = revision + 1 WHERE card_id = 'mem-0002'")
    assert superseders() == ("mem-0003",)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO card_links (workspace, card_id, relation, target) VALUES (%s, 'mem-0001', 'requires', 'mem-0002')",
        "UPDATE card_links SET target = 'mem-0001' WHERE workspace = %s",
    ],
)
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OWNER])
def test_nobody_writes_a_link_past_its_card(services: Services, linked: str, role: Role, statement: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(role, linked) as tx:
        tx.execute(statement, (linked,))


def test_not_even_the_reviewer_takes_one_away(services: Services, linked: str) -> None:
    before = links(services, linked)
    with services.database.transaction(Role.REVIEWER, linked) as tx:
        tx.execute("DELETE FROM card_links WHERE workspace = %s", (linked,))
    assert links(services, linked) == before


def test_who_supersedes_a_card_is_looked_up_by_an_index(services: Services, linked: str) -> None:
    """Under row-level security an index serves only operators that cannot leak what they see."""
    with services.database.transaction(Role.READER, linked) as tx:
        tx.execute("SET LOCAL enable_seqscan = off")
        plan = tx.execute(
            "EXPLAIN SELECT card_id FROM card_links WHERE workspace = %s AND relation = 'supersedes' AND target = %s",
            (linked, "mem-0001"),
        ).fetchall()
    told = " ".join(row["QUERY PLAN"] for row in plan)
    assert "card_links_target" in told
    assert "target = 'mem-0001'" in told.partition("Index Cond")[2].partition("Filter")[0]
