"""Hostile inputs that this project keeps for itself: texts, and lines of a ledger.

What is here was seen to break a parser, a database or a terminal somewhere. Add to it whatever breaks something next.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from memory_pipeline.core.ledger import MAX_DEPTH, MAX_LINE_BYTES, MAX_SEQ

STORABLE_TEXTS = {
    "bidi override": "abla\u202ezione\u202c",
    "bidi isolate": "\u2067seq:1\u2069",
    "zero width space": "abla\u200bzione",
    "zero width joiner": "\U0001f469\u200d⚕\ufe0f",
    "byte order mark": "\ufeffablazione",
    "line separator": "una\u2028due",
    "control signs": "\x01\x02\x1b[31mrosso\x7f\x85",
    "noncharacter": "\ufffe\U0010ffff",
    "decomposed": "attivita\u0300",
    "many combining marks": "z" + "\u0301" * 500,
    "right to left": "עברית والعربية",
    "quotes": """'; DROP TABLE cards; -- "x" `y` $$z$$""",
    "placeholders": "%s %(workspace)s {} {0} $1 :name ?",
    "backslashes": "\\x00 \\u0000 \\'",
    "paths": "../../etc/passwd /%2F/ a//b",
    "JSON inside": '{"seq": 1}',
    "words of parsers": "undefined null NaN -Infinity 1e400 0x0 1/0 NULL None nil true CON",
    "shell": "$(touch x) `id`; rm -rf / | & > x %n%s%d ${HOME}",
    "spaces of every kind": "a\u00a0\u1680\u180e\u2003\u202f\u205f\u3000b",
    "tabs and line ends": "a\tb\r\nc\rd\x0be\x0cf",
    "fillers": "abla\u00adzione\u115f\u3164\u2800x",
    "flags, skin tones and half a flag": "\U0001f1ee\U0001f1f9\U0001f1ee \U0001f469\U0001f3fd 1\ufe0f\u20e3",
    "full width, ligatures, upside down": "ＡＢＬＡＺＩＯＮＥ ﬁ ⅷ ǝuoızɐlqɐ",
    "long": "è" * 80_000,
}
"""Texts that are odd, and that have to come back as they went in."""

UNSTORABLE_TEXTS = {
    "NUL": "a\x00b",
    "high surrogate alone": "a\ud83db",
    "low surrogate alone": "a\udca9b",
    "surrogates the wrong way round": "\udca9\ud83d",
}
"""Texts that PostgreSQL cannot hold."""


HOSTILE_MARKDOWN = {
    "script": "<script>alert(1)</script>",
    "handler": "<img src=x onerror=alert(1)>",
    "frame": "<iframe src=https://evil.example></iframe>",
    "style": "<style>* { display: none }</style>",
    "HTML block": "<div>\n\n# in it\n\n</div>",
    "open comment": "<!-- from here on",
    "comment": "a <!-- b --> c",
    "CDATA": "<![CDATA[ x ]]>",
    "processing instruction": "<?php echo 1 ?>",
    "broken tag": "</td></tr></table><b",
    "entities": "&lt;script&gt; &#60;b&#62; &copy;",
    "entity of a bar": "a &#124; b",
    "image": "![seen](https://evil.example/beacon.png?who=reader)",
    "data image": "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "image by reference": "![x][y]\n\n[y]: https://evil.example/beacon.png",
    "link": "[press here](https://evil.example)",
    "link that runs": "[press here](javascript:alert(1))",
    "link that runs, in disguise": "[x](java&#x73;cript:alert(1))",
    "link in brackets": "<https://evil.example>",
    "link that runs, in brackets": "<javascript:alert(1)>",
    "link by reference": "[x]\n\n[x]: javascript:alert(1)",
    "definition": "[x]: https://evil.example",
    "footnote": "a[^1]\n\n[^1]: note",
    "bare address": "see https://evil.example/a_b?c=d for more",
    "bare address after a sign": "(http://evil.example)",
    "bare address in capitals": "HTTPS://EVIL.EXAMPLE/x",
    "bare host": "see www.evil.example.",
    "bare host in capitals": "WwW.evil.example",
    "mail": "write to someone@evil.example",
    "mail with plus": "a.b+c@evil-host.example.org",
    "address in two": "https:\u200b//evil.example www\u2060.evil.example a@\u00adb.example",
    "escaped address": "https\\://evil.example www\\.evil.example",
    "heading": "# everything is fine",
    "heading by underlining": "title\n=====",
    "heading by a line": "title\n---",
    "underlining alone": "=====",
    "rule": "***",
    "list": "- [ ] a task",
    "plus list": "+ a",
    "numbered list": "1. a",
    "numbered list with bracket": "7) a",
    "quotation": "> quoted",
    "code": "`x` ``y``",
    "fence": "```sql\nDROP TABLE cards;\n```",
    "tilde fence": "~~~\nx\n~~~",
    "indented code": "    x = 1",
    "emphasis": "*a* **b** _c_ __d__ ***e***",
    "struck out": "~~a~~ ~b~",
    "cell": "a | b",
    "cells": "| a | b | c | d |",
    "whole table": "| a | b |\n|---|---|\n| c | d |",
    "escaped bar": "a \\| b \\\\| c \\\\\\| d",
    "backslash at the end": "a\\",
    "backslashes": "\\\\ \\* \\` \\[",
    "hard break": "a  \nb\\\nc",
    "blank lines": "a\n\nb\n\n\n# c",
    "carriage returns": "a\r# b\r\n# c",
    "line separators": "a\u2028# b\u2029# c\x85# d\x0b# e\x0c# f",
    "no-break spaces": "\u00a0\u00a0\u00a0\u00a0# a",
    "bidi": "\u202e](lmth.live) \u2066x\u2069 \u200fy\u061c",
    "zero width": "*\u200ba*\ufeff <\u200bscript>",
    "tags": "a\U000e0041\U000e007f",
    "long": "![x](https://evil.example) | " * 5000,
    "long word": "*" * 100_000,
}
"""Texts that do something where they are taken for Markdown or HTML."""


STORABLE_VALUES: dict[str, Any] = {
    "null": None,
    "minus zero": -0.0,
    "the largest and the smallest number": [1.7976931348623157e308, -1e308, 5e-324],
    "numbers between integer and float": [2**53 + 1, 2**64, -(2**63) - 1, 1e16, 1.0, 1e22],
    "many digits": [10**4000, 0.1 + 0.2],
    "empty things": ["", [], {}, [[]], {"": {}}],
    "keys of parsers": {"__proto__": 1, "constructor": None, "$ref": "#", "a.b[0]": 1, '"': 2, "\\": 3, " ": 4},
    "keys that differ in form only": {"é": 1, "e\u0301": 2, "A": 3, "a": 4, "a ": 5},
    "an escaped pair of surrogates": "\U0001d11e",
    "an escape that is none": "\\u0000 \\ud800",
    "deep": [[[[[[[[[[{"a": [{"b": [None, True, False]}]}]]]]]]]]]],
    "wide": list(range(5000)),
}
"""Values of a field that is not known; they have to come back as the same JSON."""


class BadLine(NamedTuple):
    """A line that has to be refused, with the reason that the quarantine shows."""

    line: bytes
    reason: str


def line(**fields: Any) -> bytes:
    """A good line of a ledger with these fields changed; `...` leaves a field out."""
    whole = {"seq": 1, "ts": "2026-09-09T08:15:00Z", "phase": "F1", "type": "concept_clarified", "subject": "ablazione"}
    return json.dumps({name: value for name, value in {**whole, **fields}.items() if value is not ...}).encode()


def _raw(body: str) -> bytes:
    """A good line with this written at its end, as it is."""
    return line()[:-1] + b", " + body.encode("utf-8", "surrogatepass") + b"}"


BAD_LINES = {
    # not UTF-8
    "Latin-1": BadLine(_raw('"detail": "attivit"')[:-2] + b'\xe0"}', "not_utf8"),
    "UTF-16": BadLine(line().decode().encode("utf-16"), "not_utf8"),
    "encoded surrogate": BadLine(_raw('"detail": "\ud800"'), "not_utf8"),
    "overlong slash": BadLine(_raw('"detail": "')[:-1] + b'\xc0\xaf"}', "not_utf8"),
    # not JSON
    "cut short": BadLine(line()[:-20], "not_json"),
    "two objects": BadLine(line() + line(), "not_json"),
    "single quotes": BadLine(b"{'seq': 1}", "not_json"),
    "trailing comma": BadLine(line()[:-1] + b",}", "not_json"),
    "comment": BadLine(line() + b" // note", "not_json"),
    "plain words": BadLine(b"session opened", "not_json"),
    "only a bracket": BadLine(b"{", "not_json"),
    "raw control sign in a string": BadLine(_raw('"detail": "a\tb"'), "not_json"),
    "NUL byte": BadLine(_raw('"detail": "a\x00b"'), "not_json"),
    "byte order mark": BadLine(b"\xef\xbb\xbf" + line(), "not_json"),
    "NaN": BadLine(_raw('"score": NaN'), "not_json"),
    "Infinity": BadLine(_raw('"score": Infinity'), "not_json"),
    "minus Infinity": BadLine(_raw('"score": [-Infinity]'), "not_json"),
    "1e400": BadLine(_raw('"score": 1e400'), "not_json"),
    "5,000 digits": BadLine(_raw('"score": ' + "9" * 5000), "not_json"),
    "the same key twice": BadLine(_raw('"subject": "cardioversione"'), "not_json"),
    "the same key twice, deep": BadLine(_raw('"extra": [{"a": 1, "a": 2}]'), "not_json"),
    # too much of it
    "deep lists": BadLine(_raw('"extra": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH), "too_deep"),
    "100,000 open brackets": BadLine(b"[" * 100_000, "too_deep"),
    "deep objects, never closed": BadLine(b'{"a":' * 5000, "too_deep"),
    "one byte too long": BadLine(line(detail="x" * (MAX_LINE_BYTES + 1 - len(line(detail="")))), "too_long"),
    # not an entry
    "a list": BadLine(b"[]", "shape"),
    "null": BadLine(b"null", "shape"),
    "a number": BadLine(b"7", "shape"),
    "an empty object": BadLine(b"{}", "shape"),
    "no seq": BadLine(line(seq=...), "shape"),
    "seq true": BadLine(line(seq=True), "shape"),
    "seq as text": BadLine(line(seq="1"), "shape"),
    "seq 1.0": BadLine(line(seq=1.0), "shape"),
    "seq 0": BadLine(line(seq=0), "shape"),
    "seq below 0": BadLine(line(seq=-1), "shape"),
    "seq above what a reference can name": BadLine(line(seq=MAX_SEQ + 1), "shape"),
    "seq above 64 bits": BadLine(line(seq=1 << 64), "shape"),
    "no ts": BadLine(line(ts=...), "shape"),
    "ts without offset": BadLine(line(ts="2026-09-09T08:15:00"), "shape"),
    "ts a date": BadLine(line(ts="2026-09-09"), "shape"),
    "ts a number": BadLine(line(ts=1757405700), "shape"),
    "ts a number as text": BadLine(line(ts="1757405700"), "shape"),
    "ts no such day": BadLine(line(ts="2026-02-30T08:15:00Z"), "shape"),
    "ts before the epoch": BadLine(line(ts="0001-01-01T00:00:00+14:00"), "shape"),
    "ts past what a database takes": BadLine(line(ts="9999-12-31T23:59:59-14:00"), "shape"),
    "no type": BadLine(line(type=...), "shape"),
    "type empty": BadLine(line(type=""), "shape"),
    "type a list": BadLine(line(type=["concept_clarified"]), "shape"),
    "type too long": BadLine(line(type="x" * 101), "shape"),
    "phase a number": BadLine(line(phase=1), "shape"),
    "a decision without subject": BadLine(line(subject=...), "shape"),
    "a decision with a blank subject": BadLine(line(subject=" \t"), "shape"),
    "a legacy rejection without subject": BadLine(line(type="memory_rejected", subject=None), "shape"),
    "concepts a text": BadLine(line(concepts="ablazione"), "shape"),
    "concepts of numbers": BadLine(line(concepts=[1]), "shape"),
    "dependency a text": BadLine(line(dependencies=["cardio.public"]), "shape"),
    "dependency without database": BadLine(line(dependencies=[{"schema": "public"}]), "shape"),
    "dependency with a blank table": BadLine(line(dependencies=[{"database": "cardio", "table": " "}]), "shape"),
    "column without table": BadLine(line(dependencies=[{"database": "cardio", "column": "cod_paz"}]), "shape"),
    "dependency with an unknown part": BadLine(line(dependencies=[{"database": "cardio", "\x00": "x"}]), "shape"),
    "dependency with a long unknown part": BadLine(line(dependencies=[{"database": "d", "k" * 90_000: 1}]), "shape"),
    "link of an unknown relation": BadLine(line(links=[{"relation": "implies", "target": "seq:1"}]), "shape"),
    "link to a phase": BadLine(line(links=[{"relation": "requires", "target": "phase:F1"}]), "shape"),
    "link to nothing readable": BadLine(line(links=[{"relation": "requires", "target": "\u202e" * 9000}]), "shape"),
    "origin pipeline": BadLine(line(origin="pipeline"), "shape"),
    "origin unknown": BadLine(line(origin=None), "shape"),
    "NUL in the subject": BadLine(line(subject="a\x00b"), "shape"),
    "NUL in a list": BadLine(line(tables=["a\x00b"]), "shape"),
    "NUL in an unknown field": BadLine(line(extra={"a": [{"b": "\x00"}]}), "shape"),
    "NUL in a key": BadLine(line(**{"a\x00b": 1}), "shape"),
    "half a surrogate pair": BadLine(line(subject="a\ud800b"), "shape"),
    "half a surrogate pair in the type": BadLine(line(type="\udfff"), "shape"),
    "half a surrogate pair in an unknown field": BadLine(line(extra=["\ud800"]), "shape"),
    "half a surrogate pair in a key": BadLine(line(**{"\ud800": 1}), "shape"),
}
"""Lines that no door may take. None of them ends the reading of the others."""
