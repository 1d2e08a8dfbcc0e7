"""Folders of cards and questions: what a line becomes, and how a bad one is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadCorpus
from memory_pipeline.harness.sample import golden_corpus
from memory_pipeline.operations.corpora import Corpus, CorpusCard, load_corpora
from memory_pipeline_tests.operations.corpus import write_set


def one(folder: Path, **files: list[dict[str, Any]]) -> Corpus:
    write_set(folder / "odd name", **files)
    (corpus,) = load_corpora(folder)
    return corpus


def card_of(folder: Path, **fields: Any) -> CorpusCard:
    (card,) = one(folder, cards=[{"id": "a", **fields}]).cards
    return card


@pytest.mark.parametrize(
    ("fields", "subject", "detail"),
    [
        ({"subject": "s", "detail": "d"}, "s", "d"),
        ({"subject": "s", "detail": "d", "domain": "1 or 2"}, "s", "d 1 or 2"),
        ({"title": "t", "text": "long text"}, "t", "long text"),
        ({"title": None, "text": "long text"}, "long text", "long text"),
        ({"subject": "", "detail": "word " * 40}, ("word " * 16).strip(), ("word " * 40).strip()),
        ({"subject": None, "detail": "x" * 100}, "x" * 80, "x" * 100),
        ({"text": " " * 100 + "word\u00a0"}, "word", "word"),
        ({"subject": "s"}, "s", "s"),
    ],
)
def test_subject_and_detail_are_made_of_what_a_line_has(
    fields: dict[str, Any], subject: str, detail: str, tmp_path: Path
) -> None:
    content = card_of(tmp_path, **fields).content

    assert (content.subject, content.detail) == (subject, detail)


def test_a_line_keeps_its_place_its_question_and_what_it_requires_and_nothing_it_should_not(tmp_path: Path) -> None:
    card = card_of(
        tmp_path, subject="s", detail="d", database="db", schema=None, table="T", column="C d", links=["b", 7],
        question_context="who?", first_question_id=4, kind="formula", scope="column", type="table_promoted",
    )  # fmt: skip

    assert card.content.dependencies == (Dependency(database="db", table="T", column="C d"),)
    assert card.content.question_context == "who?"
    assert card.content.type == "concept_clarified"
    assert card.content.scope == ()
    assert (card.requires, card.order) == (("b", "7"), 4)


@pytest.mark.parametrize(
    ("cards", "queries", "language"),
    [(["it", "it", "en"], ["en", "en"], "it"), ([None], ["it", "en", "it"], "it"), ([None], [None], "en")],
)
def test_the_language_is_that_of_most_cards_or_else_of_most_questions(
    cards: list[str | None], queries: list[str | None], language: str, tmp_path: Path
) -> None:
    corpus = one(
        tmp_path,
        passages=[{"id": number, "text": "t", "lang": lang} for number, lang in enumerate(cards)],
        queries=[{"id": number, "question": "q", "lang": lang} for number, lang in enumerate(queries)],
    )

    assert corpus.language == language


def test_sets_are_found_by_their_files_whatever_their_names_and_a_folder_may_be_one_itself(tmp_path: Path) -> None:
    write_set(tmp_path / "b", cards=[{"id": "1", "detail": "d"}])
    write_set(tmp_path / "a", passages=[{"id": "1", "text": "t"}], queries=[{"id": "q", "question": "?"}])
    (tmp_path / "neither").mkdir()
    (tmp_path / "README.md").write_text("no set")

    assert [(corpus.name, len(corpus.queries)) for corpus in load_corpora(tmp_path)] == [("a", 1), ("b", 0)]
    assert [corpus.name for corpus in load_corpora(tmp_path / "b")] == ["b"]
    assert [corpus.name for corpus in load_corpora(tmp_path, ("b",))] == ["b"]


def test_a_set_goes_by_its_name_in_the_folder_and_none_is_lost_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for name in ("x", "y"):
        write_set(tmp_path / name / "data", cards=[{"id": name, "detail": "d"}])
        (many / name).symlink_to(tmp_path / name / "data")
    (many / "loop").symlink_to(many / "loop")

    assert [(corpus.name, corpus.cards[0].id) for corpus in load_corpora(many)] == [("x", "x"), ("y", "y")]
    assert [corpus.name for corpus in load_corpora(many / "y")] == ["y"]
    monkeypatch.chdir(tmp_path / "x" / "data")
    assert [corpus.name for corpus in load_corpora(Path())] == ["data"]


@pytest.mark.parametrize("file", ["cards.jsonl", "passages.jsonl", "queries.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda file: os.symlink("nowhere", file)])
def test_what_has_the_name_of_a_file_and_is_none_is_told(
    make: Callable[[Path], None], file: str, tmp_path: Path
) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    if file == "queries.jsonl":
        write_set(odd, cards=[{"id": "a", "detail": "d"}])
    make(odd / file)
    write_set(tmp_path / "sound", cards=[{"id": "a", "detail": "d"}])

    with pytest.raises(BadCorpus, match=f"odd/{file}: it is no file"):
        load_corpora(tmp_path)
    assert [corpus.name for corpus in load_corpora(tmp_path, ("sound",))] == ["sound"]


@pytest.mark.parametrize("name", [b"bad\xff", b" "])
def test_a_folder_whose_name_can_name_no_set_is_refused_before_anything_is_made(name: bytes, tmp_path: Path) -> None:
    write_set(tmp_path / os.fsdecode(name), cards=[{"id": "a", "detail": "d"}])
    write_set(tmp_path / "sound", cards=[{"id": "a", "detail": "d"}])

    with pytest.raises(BadCorpus, match="the name of a set") as refused:
        load_corpora(tmp_path)
    assert refused.value.message.isascii()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"id": "a", "detail": "d"', "it is not JSON"),
        (b'{"id": "a", "detail": "\xff"}', "it is not UTF-8"),
        (b'{"id": "a", "detail": "d", "score": NaN}', "NaN is no number"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "line: "),
        (b'{"detail": "d"}', "id: "),
        (b'{"id": "a"}', "the subject of a card is blank"),
        (b'{"id": "a", "subject": "s", "detail": " \\n"}', "the detail of a card is blank"),
        (b'{"id": "a", "detail": "d\\u0000"}', "NUL"),
        (b'{"id": "a", "detail": "d\\ud800"}', "surrogate"),
        (b'{"id": "a", "subject": "fact_sales", "detail": "d"}', "fact_sales"),
        (b'{"id": "a", "detail": "d", "database": "db", "column": "c"}', "without its table"),
        (b'{"id": "a", "detail": ["d"]}', "detail: "),
        (b'{"id": "a", "detail": "d", "links": "b"}', "links"),
        (b'{"id": "a", "text": "' + b" " * 200 + b'"}', "the subject of a card is blank"),
        (b'{"id": "a", "detail": "d", "database": "db", "table": "t\\ud800"}', "surrogate"),
        (b'{"id": "a", "detail": "d", "lang": "IT"}', "no analyser for language 'IT'"),
        (b'{"id": "a", "detail": "d", "lang": "x\\ud800\\n"}', r"no analyser for language 'x\ud800\n'"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_file_and_number(line: bytes, why: str, tmp_path: Path) -> None:
    write_set(tmp_path / "s")
    (tmp_path / "s" / "cards.jsonl").write_bytes(b'{"id": "good", "detail": "d"}\n\n' + line + b"\n")

    with pytest.raises(BadCorpus) as refused:
        load_corpora(tmp_path)
    assert refused.value.message.startswith(f"{tmp_path / 's' / 'cards.jsonl'}:3: ")
    assert why in refused.value.message


@pytest.mark.parametrize(
    "line",
    [
        {"id": "q", "question": " "},
        {"id": "q"},
        {"id": "q", "question": "?", "relevant": 7},
        {"id": "q", "question": "x" * 8001},
        {"id": "q", "question": "a\x00b"},
        {"id": "q", "question": "?", "database": "a\x00b"},
        {"id": "q", "question": "?", "database": "a\ud800"},
        {"id": "q", "question": "?", "lang": "de"},
        {"id": "q", "question": "?", "lang": "en\x00\n[red]"},
        {"id": "q", "question": "?", "lang": "x\ud800"},
    ],
)
def test_a_question_that_cannot_be_used_is_named_too(line: dict[str, Any], tmp_path: Path) -> None:
    write_set(tmp_path, cards=[{"id": "a", "detail": "d"}])
    (tmp_path / "queries.jsonl").write_text(json.dumps(line))

    with pytest.raises(BadCorpus, match=r"queries\.jsonl:1: "):
        load_corpora(tmp_path)


def test_questions_of_cards_that_come_to_exist_between_them_are_numbered(tmp_path: Path) -> None:
    write_set(
        tmp_path, cards=[{"id": "a", "detail": "d", "first_question_id": 1}], queries=[{"id": "x", "question": "?"}]
    )

    with pytest.raises(BadCorpus, match="'x' ends in no number"):
        load_corpora(tmp_path)


def test_what_is_no_corpus_is_refused_by_name(tmp_path: Path) -> None:
    write_set(tmp_path / "s", cards=[{"id": "a", "detail": "d"}, {"id": "a", "detail": "e"}])
    with pytest.raises(BadCorpus, match="'a' among them"):
        load_corpora(tmp_path)
    with pytest.raises(BadCorpus, match="there is no set t; there is s"):
        load_corpora(tmp_path, ("t",))
    with pytest.raises(BadCorpus, match="No such file"):
        load_corpora(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadCorpus, match="is in it or in a folder of it"):
        load_corpora(tmp_path / "empty")


def test_the_set_of_the_project_asks_in_two_languages_only_for_what_is_in_it() -> None:
    (corpus,) = load_corpora(golden_corpus())
    known = {card.id for card in corpus.cards}

    assert {query.language for query in corpus.queries} == {"it", "en"}
    assert len(corpus.queries) >= 30
    for query in corpus.queries:
        assert set(query.relevant) <= set(query.closure) <= known
    texts = (golden_corpus() / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    assert len({json.loads(line)["question"] for line in texts}) == len(texts)
