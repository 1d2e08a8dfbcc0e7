"""Whatever a text says, in our Markdown it is text: no markup, no HTML, no link, no cell."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.core.display import LONGEST_CELL, plain
from memory_pipeline.core.markdown import WORD_JOINER, escape
from memory_pipeline_tests.core.rendering import links, texts, tree
from memory_pipeline_tests.nasty import HOSTILE_MARKDOWN, STORABLE_TEXTS, UNSTORABLE_TEXTS


class Place(NamedTuple):
    """Somewhere in our Markdown where a text may stand, and what the tree is there whatever the text."""

    template: str
    tree: list[str]
    before: int = 0

    def shown(self, text: str) -> str:
        """Our Markdown with the escaped text in it."""
        return self.template.replace("{}", escape(text))


_ITEM = ["bullet_list", "list_item", "paragraph"]
_TABLE = ["table", "thead", "tr", "th", "th", "th", "tbody", "tr", "td", "td", "td"]
PLACES = {
    "a paragraph": Place("{}", ["paragraph"]),
    "within a line": Place("before {} after", ["paragraph"]),
    "a line under another": Place("before\n{}", ["paragraph", "softbreak"]),
    "a line over another": Place("{}\nafter", ["paragraph", "softbreak"]),
    "a quotation": Place("> {}", ["blockquote", "paragraph"]),
    "a list": Place("- {}", _ITEM),
    "strong on a line of its own": Place("- **{}**\n\n  after", [*_ITEM, "strong", "paragraph"]),
    "a paragraph of a list": Place("- before\n\n  {}", [*_ITEM, "paragraph"], before=1),
    "a heading": Place("## {}", ["heading"]),
    "a cell": Place("| a | b | c |\n|---|---|---|\n| x | {} | y |", _TABLE, before=4),
    "the first cell": Place("| a | b | c |\n|---|---|---|\n| {} | x | y |", _TABLE, before=3),
    "the last cell": Place("| a | b | c |\n|---|---|---|\n| x | y | {} |", _TABLE, before=5),
}
SIGNS = st.text(st.sampled_from("ab1 .:/\\|`*_~#<>[]()!&;@=+-^$\"'\n\r\t{}%wWhtps\u202e\u200b\u2060é"), max_size=40)
PIECES = st.lists(st.sampled_from(sorted(HOSTILE_MARKDOWN.values())) | SIGNS, max_size=4).map("".join)


def acts(place: Place, markdown: str, text: str) -> bool:
    """Whether a text in its place is anything but this text."""
    shown = texts(markdown)[place.before :][:1]
    return tree(markdown) != place.tree or links(markdown) != [] or text not in "".join(shown).replace(WORD_JOINER, "")


def assert_inert(text: str) -> None:
    """Wherever it stands, the text is shown and is nothing but text."""
    if shown := plain(text):
        assert [name for name, place in PLACES.items() if acts(place, place.shown(text), shown)] == []


@pytest.mark.parametrize(
    "text",
    [*HOSTILE_MARKDOWN.values(), *STORABLE_TEXTS.values(), *UNSTORABLE_TEXTS.values()],
    ids=[*HOSTILE_MARKDOWN, *STORABLE_TEXTS, *UNSTORABLE_TEXTS],
)
def test_a_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    assert_inert(text)


@settings(max_examples=150)
@given(text=SIGNS | PIECES | st.text(max_size=60))
def test_any_text_is_shown_and_does_nothing(text: str) -> None:
    assert_inert(text)


@pytest.mark.parametrize("text", HOSTILE_MARKDOWN.values(), ids=HOSTILE_MARKDOWN)
def test_the_hostile_texts_do_something_where_they_are_not_escaped(text: str) -> None:
    acting = any(acts(place, place.template.replace("{}", text), text) for place in PLACES.values())
    assert acting or plain(text) != text  # or it acts on the eye alone


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("ablazione", "ablazione"),
        ("COUNT(DISTINCT cod_paz)", r"COUNT\(DISTINCT cod\_paz\)"),
        ("a|b", r"a\|b"),
        ("two\nlines", "two lines"),
        ("https://x.org", f"https:{WORD_JOINER}//x\\.org"),
        ("WWW.x.org", f"WWW{WORD_JOINER}\\.x\\.org"),
        ("a@x.org", f"a@{WORD_JOINER}x\\.org"),
        ("", ""),
    ],
)
def test_what_can_mean_something_is_escaped_and_the_rest_stays(text: str, markdown: str) -> None:
    assert escape(text) == markdown


def test_a_text_is_cut_before_it_is_escaped() -> None:
    assert texts(escape("*" * 100_000)) == ["*" * (LONGEST_CELL - 1) + "…"]
    assert texts(escape("*" * 100_000, 5)) == ["****…"]
