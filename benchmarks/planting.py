"""Workspaces full of cards: distinct texts of a realistic length, put in by SQL as the reviewer would."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from psycopg.types.json import Jsonb

from memory_pipeline.core.cards import CardContent, CardKind, card_id
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role

DATABASE, SCHEMA = "archivio", "pubblico"

_NOUNS = """
ricovero dimissione paziente reparto intervento ablazione dialisi terapia farmaco visita esame referto diagnosi
protesi emocultura ventilazione sedazione triage accesso degenza trasferimento decesso follow-up consulenza
commessa fattura ordine cliente fornitore esercizio margine ricavo consegna scorta reso listino sconto contratto
"""
_ADJECTIVES = """
urgente programmato ordinario diurno notturno ripetuto precedente successivo annuale mensile primario secondario
elettivo complesso interno esterno attivo sospeso chiuso parziale completo stimato consolidato pediatrico
"""
_RULES = (
    "si conta una sola volta per anno solare",
    "vale soltanto se la data di inizio precede quella di fine",
    "esclude le righe annullate e quelle di prova",
    "si misura in giorni interi tra la prima e l'ultima data",
    "comprende i trasferimenti da un altro reparto",
    "is counted per distinct patient and calendar year",
    "ignores rows whose status is cancelled or test",
    "prende il valore più recente quando ve n'è più d'uno",
    "si attribuisce al reparto che ha dimesso",
    "excludes corrections booked after the closing of the year",
)
_CHUNK = 1000


def contents(count: int, seed: int = 0) -> Iterator[CardContent]:
    """Card contents, each different, of 60 to 90 tokens; the same ones for the same seed."""
    draw = random.Random(seed)  # noqa: S311 - texts, not secrets
    for number in range(1, count + 1):
        thing, other, third = draw.sample(_NOUNS.split(), 3)
        quality, another = draw.sample(_ADJECTIVES.split(), 2)
        rules = draw.sample(_RULES, 2)
        column = f"{thing}_{quality}".replace("-", "_")
        table = f"fact_{other}".replace("-", "_")
        yield CardContent(
            type="concept_clarified",
            subject=f"{thing} {quality} {number}",
            detail=f"{thing} {quality} di {other} {another} con {column} = {number}: {rules[0]}; {rules[1]}",
            rationale=f"confermato dal revisore per {third} {another}, regola {draw.randrange(10**6)}",
            question_context=f"quanti {thing} {quality} per {other} nel {2000 + number % 26}?",
            concepts=(thing, f"{other} {another}"),
            dependencies=(Dependency(database=DATABASE, schema_=SCHEMA, table=table, column=column),)
            if number % 5
            else (),
        )


def plant(services: Services, workspace: str, count: int) -> None:
    """Give an empty workspace its cards. The store's triggers keep revisions and queue propagations, as ever."""
    numbered = enumerate(contents(count), start=1)
    while chunk := list(islice(numbered, _CHUNK)):
        with services.database.transaction(Role.REVIEWER, workspace) as tx:
            tx.execute(
                """
                INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale,
                                   question_context, scope, concepts, tables, dependencies, links, fingerprint,
                                   dependencies_sha256, scope_sha256)
                SELECT %s, card_id, number, kind, type, subject, detail, rationale, question_context,
                       scope, concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256
                FROM jsonb_to_recordset(%s) AS planted (
                    card_id text, number bigint, kind text, type text, subject text, detail text, rationale text,
                    question_context text, scope text[], concepts text[], tables text[], dependencies jsonb,
                    links jsonb, fingerprint text, dependencies_sha256 text, scope_sha256 text)
                """,
                (workspace, Jsonb([_row(number, content) for number, content in chunk])),
            )


def _row(number: int, content: CardContent) -> dict[str, object]:
    return content.model_dump(mode="json") | {
        "card_id": card_id(number),
        "number": number,
        "kind": CardKind.MEMORY.value,
        "dependencies_sha256": content.dependencies_sha256,
        "scope_sha256": content.scope_sha256,
    }
