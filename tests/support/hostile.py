"""Text that a broken or malicious node could send, each with what must never reach a terminal or a
page because of it."""

from __future__ import annotations

TEXTS = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "attribute": '"><svg onload=alert(3) x="',
    "style": "</style><style>*{display:none}</style>",
    "comment": "--><!-- <!doctype html>",
    "terminal title": "\x1b]0;owned\x07",
    "terminal colours": "\x1b[2J\x1b[31mred\x1b[0m",
    "c1 csi": "\x9b31mred",
    "bidi override": "safe\u202egnp.exe\u202c",
    "bidi isolate": "\u2066hidden\u2069",
    "zero width": "ad\u200bmin\ufeff",
    "line breaks": "one\ntwo\r\nthree\u2028four",
    "nul and delete": "a\x00b\x7fc",
    "lone surrogate": "\ud800broken",
    "tag letters": "ok\U000e0041\U000e0042",
    "zalgo": "e" + "\u0301" * 500,
    "jinja": "{{ 7 * 7 }}{% raw %}{# x #}",
    "node set": "gpu[1-999999999],@all,~x",
    "path": "../../etc/passwd",
    "very long": "A" * 300_000,
    "long word with breaks": "ÄÖ\u200d" * 100_000,
}
