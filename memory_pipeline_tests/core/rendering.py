"""Markdown as a renderer takes it, with tables, HTML and any link there is, and the links that the UI would add."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_RENDERER.validateLink = lambda url: True  # type: ignore[method-assign] # the strictest judge takes every link for one

_BARE_ADDRESSES = (
    re.compile(r"(https?://|www(?=\.))([-.\w]+)([^ \t\r\n]*)", re.IGNORECASE | re.ASCII),
    re.compile(r"([-.\w+]+)@([-\w]+(?:\.[-\w]+)+)", re.ASCII),
)
"""What the Dagster UI makes into links wherever it stands in a rendered text, escaped or not (remark-gfm)."""


def tree(markdown: str) -> list[str]:
    """Types of all nodes but texts and ends, in order: `heading`, `image`, `td`, ..."""
    return [_name(token) for token in _walk(_RENDERER.parse(markdown)) if token.nesting >= 0 and _name(token) != "text"]


def texts(markdown: str) -> list[str]:
    """The text of each block or cell, in order."""
    blocks = [token for token in _RENDERER.parse(markdown) if token.type == "inline"]
    return ["".join(child.content for child in token.children or ()) for token in blocks]


def links(markdown: str) -> list[str]:
    """Everything that a click or a mere look would fetch: links, images, and bare addresses in source or text."""
    found = [token.type for token in _walk(_RENDERER.parse(markdown)) if token.type in ("link_open", "image")]
    return found + [
        hit.group() for text in (markdown, *texts(markdown)) for rule in _BARE_ADDRESSES for hit in rule.finditer(text)
    ]


def _walk(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "inline":
            yield from _walk(token.children or [])
        else:
            yield token


def _name(token: Token) -> str:
    return token.type.removesuffix("_open")
