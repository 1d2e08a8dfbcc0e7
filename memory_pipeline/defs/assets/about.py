"""What the asset pages say of the stores behind them: the table, its columns, the page of the documentation.

A test holds the columns to the database, so that none is told that is not there.
"""

from __future__ import annotations

import dagster as dg

SOURCE = {"layer": "source"}
TRUTH = {"layer": "truth"}
DERIVED = {"layer": "derived"}
"""Tags: what came in, what a reviewer decided, and what can be made again from those."""

_WORKSPACE = dg.TableColumn("workspace", "text", "the partition; a row is seen in its own workspace only")

LEDGER = (
    _WORKSPACE,
    dg.TableColumn("session_id", "text", "the question in whose course the row was written"),
    dg.TableColumn("origin", "text", "harness, or pipeline for the markers of the gate"),
    dg.TableColumn("seq", "bigint", "the harness's number in the session; gaps are fine"),
    dg.TableColumn("ts", "timestamp with time zone", "when the harness says that it was"),
    dg.TableColumn("phase", "text", "F1 to F8"),
    dg.TableColumn("type", "text", "what kind of decision; an unknown one is stored and inert"),
    dg.TableColumn("subject", "text", "the concept, table or column"),
    dg.TableColumn("detail", "text", "what was decided about it"),
)
EFFECTIVE = (
    _WORKSPACE,
    dg.TableColumn("session_id", "text", "the session"),
    dg.TableColumn("seq", "bigint", "the decision"),
    dg.TableColumn("type", "text", "what kind of decision"),
    dg.TableColumn("subject", "text", "the concept, table or column"),
    dg.TableColumn("detail", "text", "what was decided about it"),
)
CARDS = (
    _WORKSPACE,
    dg.TableColumn("card_id", "text", "mem-0001 and on; never used again"),
    dg.TableColumn("kind", "text", "memory, exemplar or evidence"),
    dg.TableColumn("revision", "integer", "one more with every change"),
    dg.TableColumn("status", "text", "only active cards are in the index"),
    dg.TableColumn("subject", "text", "the concept"),
    dg.TableColumn("detail", "text", "what it means"),
    dg.TableColumn("dependencies", "jsonb", "databases, tables and columns for which it holds; none: everywhere"),
    dg.TableColumn("updated_at", "timestamp with time zone", "the newest change"),
)
SOURCES = (
    _WORKSPACE,
    dg.TableColumn("card_id", "text", "the card"),
    dg.TableColumn("provenance", "text", "promotion, curation or import"),
    dg.TableColumn("session_id", "text", "the session whose decision it was"),
    dg.TableColumn("decision_seq", "bigint", "the decision; it makes one card, however often it is promoted"),
    dg.TableColumn("decided_by", "text", "the login of the reviewer"),
)
DENSE = (
    _WORKSPACE,
    dg.TableColumn("model_digest", "text", "the very model"),
    dg.TableColumn("text_sha256", "text", "the text; unchanged text is never embedded again"),
    dg.TableColumn("dimensions", "integer", "numbers in the vector"),
    dg.TableColumn("pooled", "boolean", "the text was above the model's limit: split at sentences, the mean kept"),
)
SPARSE = (
    _WORKSPACE,
    dg.TableColumn("analyser", "text", "tokenizer, stemmer and language, with its version"),
    dg.TableColumn("text_sha256", "text", "the text"),
    dg.TableColumn("indices", "bigint[]", "terms"),
    dg.TableColumn("weights", "real[]", "their BM25 weights, without IDF, which is the server's"),
)
POINTS = (
    _WORKSPACE,
    dg.TableColumn("generation", "integer", "the index that was built"),
    dg.TableColumn("card_id", "text", "the card behind the point"),
    dg.TableColumn("revision", "integer", "of the card, as it was projected"),
    dg.TableColumn("expected_sha256", "text", "what the point must hold"),
    dg.TableColumn("acknowledged_sha256", "text", "what the server was seen to hold"),
    dg.TableColumn("acknowledged_at", "timestamp with time zone", "when it was seen"),
)
QUALITY = (
    _WORKSPACE,
    dg.TableColumn("measured_at", "timestamp with time zone", "when recall was measured"),
    dg.TableColumn("cards", "bigint", "active memories then"),
    dg.TableColumn("self_recall", "double precision", "share of the sampled cards that their own words find"),
    dg.TableColumn("golden", "integer", "golden questions that were asked"),
    dg.TableColumn("ndcg_at_10", "double precision", "of the golden questions, as are the next three"),
    dg.TableColumn("recall_at_1", "double precision", "share of the expected cards that came first"),
    dg.TableColumn("recall_at_5", "double precision", "share of them among the first five"),
    dg.TableColumn("mrr", "double precision", "mean of 1 / rank of the first expected card"),
    dg.TableColumn("accepted_at", "timestamp with time zone", "when a reviewer said that later ones are held to it"),
)


def about(table: str, columns: tuple[dg.TableColumn, ...], docs: str) -> dict[str, dg.RawMetadataValue]:
    """Metadata of an asset's definition: the relation in PostgreSQL, its columns and the page to read."""
    return {
        "dagster/table_name": f"memory.{table}",
        "dagster/column_schema": dg.TableSchema(list(columns)),
        "docs": dg.MetadataValue.path(docs),
    }
