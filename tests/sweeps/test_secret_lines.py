"""Lines as jobs, Slurm, Kubernetes, Ansible and tools of clouds write them, in `secrets/`: made up
before the patterns that find their secrets.

`«…»` is a secret, `⏎` a line break; `¦` cuts what would look like a real token. Each file was
written after the one before it was masked.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from unhang.core.secrets_in_text import MASK, masked_document, without_secrets

FOLDER = Path(__file__).parent / "secrets"
STILL_OUT = {  # decision 21 counts them
    "SGFydmVzdE1vb24yMg==": "a value in a Secret of Kubernetes: its own name says nothing",
    "river stone 44 lamp": "a passphrase of several words without quotes, whose first has no digit",
}


def lines_of(name):
    """(text, the secrets in it)"""
    for which in ("first", "second", "third", "fourth"):
        for line in (FOLDER / f"{which}_{name}.txt").read_text(encoding="utf-8").splitlines():
            marked = line.replace("⏎", "\n").replace("¦", "")
            yield re.sub("[«»]", "", marked), re.findall("«(.*?)(?:»|$)", marked, re.DOTALL)


def comes_out(text, secrets):
    """Secrets of which four letters in a row are in what is left."""
    return [secret for secret in secrets if remains(secret, without_secrets(text))]


def remains(secret, left):
    return any(
        line[at : at + 4] in left
        for line in secret.split("\n")
        for at in range(max(1, len(line) - 3))
    )


@pytest.mark.parametrize(("text", "secrets"), list(lines_of("secret")))
def test_no_secret_of_a_line_comes_out(text, secrets):
    assert secrets, "the line marks no secret"
    assert comes_out(text, secrets) == [secret for secret in secrets if secret in STILL_OUT], (
        "or it is masked now: take it out of STILL_OUT"
    )
    assert without_secrets(without_secrets(text)) == without_secrets(text)


@pytest.mark.parametrize("text", [text for text, _ in lines_of("innocent")])
def test_a_line_without_a_secret_stays(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize(("text", "secrets"), list(lines_of("secret")))
def test_the_lines_of_a_log_in_evidence_are_masked_as_one_text(text, secrets):
    shown = masked_document(
        {
            "log_tail": {
                "logs": [{"path": "/x.log", "lines": ["begin", *text.split("\n"), "the end"]}]
            }
        }
    )
    lines = shown["log_tail"]["logs"][0]["lines"]
    assert lines[0] == "begin"
    assert [one for one in secrets if remains(one, "\n".join(lines))] == [
        one for one in secrets if one in STILL_OUT
    ]


def test_options_in_a_list_and_pairs_of_name_and_value_are_masked_in_a_document():
    given = {
        "argv": ["srun", "--password", "kelpMoss", "--lr", "3e-4"],
        "env": [{"name": "DB_PASSWORD", "value": "kelpMoss"}, {"name": "MODE", "value": "x9"}],
    }
    assert masked_document(given) == {
        "argv": ["srun", "--password", MASK, "--lr", "3e-4"],
        "env": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "MODE", "value": "x9"}],
    }


def test_every_entry_of_a_list_under_a_secret_name_is_masked():
    given = {
        "passwords": ["kelpMoss", "frog42Lamp"],
        "hosts": ["gpu01"],
        "argv": ["--password", "kelpMoss"],
    }
    assert masked_document(given) == {
        "passwords": [MASK, MASK],
        "hosts": ["gpu01"],
        "argv": ["--password", MASK],
    }
    assert (
        without_secrets('"api_keys": ["aB3 x", "second"], "n": ["a"]')
        == f'"api_keys": ["{MASK}", "{MASK}"], "n": ["a"]'
    )
    assert (
        without_secrets("PASSWORD:\n  - kelpMoss\n  - 'frog42'\nhosts:\n  - gpu01\n")
        == f"PASSWORD:\n  - {MASK}\n  - '{MASK}'\nhosts:\n  - gpu01\n"
    )


@pytest.mark.parametrize(
    "part",
    [
        "token,password",
        "?key=",
        "secret>a",
        "token=(",
        "token_file=",
        "api key ",
        '"password", ',
        "password:\n",
        "login -p 1 ",
        "A/b9",
        "aB3",
        "aB3-",
        "token,a\n",
        "a b,",
        "密码:",
        'send "',
    ],
)
def test_time_is_linear_in_the_length_of_a_text(part):
    """Eight times the text may take 24 times the time: one that is quadratic takes 64 times."""

    def took(length):
        started = time.process_time()
        without_secrets(part * (length // len(part)))
        return time.process_time() - started

    assert min(took(40_000) for _ in range(2)) < 24 * max(min(took(5_000) for _ in range(3)), 0.002)
