"""What a webhook gets: Slack and Teams, known by their address, take a message of their form;
every other address gets the document itself. Values in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from unhang.core.text import visible
from unhang_node.base.parse.values import as_map

SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
# Teams' workflows, and the connectors before them
TEAMS = ("logic.azure.com", "api.powerplatform.com", "webhook.office.com")
LONGEST = 12_000  # letters; Teams refuses messages above 28 KB
LONGEST_LINE = 1500
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def body_for(address: str, message: Mapping[str, Any]) -> bytes:
    """The body of the request.

    Sources: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and
    https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
    """
    host = (urlsplit(address).hostname or "").lower()
    if host in SLACK:
        text = "".join(_ESCAPED.get(letter, letter) for letter in text_of(message))
        return _json({"text": text})
    if any(host == one or host.endswith(f".{one}") for one in TEAMS):
        # runs of text, which take no Markdown: what a node says makes no link
        blocks = [
            {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line or " "}]}
            for line in text_of(message).split("\n")
        ]
        card = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
        kind = "application/vnd.microsoft.card.adaptive"
        return _json({"type": "message", "attachments": [{"contentType": kind, "content": card}]})
    return _json(message)


def text_of(message: Mapping[str, Any]) -> str:
    """News of a run as they are; of the short form of a verdict its headline, the next command and
    where the evidence is."""
    if isinstance(message.get("text"), str):
        return _cut(message["text"])
    verdict, then = as_map(message.get("verdict")), as_map(message.get("next"))
    on = f"next, on {then['host']}" if then.get("host") else "next"
    lines = [f"unhang {message.get('by') or ''}: {verdict.get('headline') or verdict.get('word')}"]
    lines += [f"{on}: {then['command']}"] if then.get("command") else []
    lines += [f"evidence: {message['full']}"] if message.get("full") else []
    return _cut("\n".join(visible(line, LONGEST_LINE) for line in lines))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
