"""What unhang wrote is given to everything of unhang that reads it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from unhang.cli import main
from unhang.core.schemas.check import check_schema
from unhang.jobs.inspect.bundle import bundle_texts


def printed(*words: object) -> str:
    """What a command prints, which may find something and may not fail."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main([str(word) for word in words])
    assert code != 2, (words, code, errors.getvalue(), out.getvalue())
    return out.getvalue()


def fits(document: object, schema: str) -> None:
    faults = list(check_schema(document, schema))
    assert not faults, faults


def evidence_again(bundle: Path, folder: Path) -> dict:
    """The inspection of a bundle, which is the one that lies in it; its documents are read alone
    too."""
    texts = {name: text.decode() for name, text in bundle_texts(bundle).items()}
    found = json.loads(printed("inspect", "--evidence", bundle, "-o", "json"))
    assert found == json.loads(texts["inspection.json"])
    fits(found, "inspection-1")
    fits(json.loads(texts["short.json"]), "evidence-short-1")
    diagnosed = json.loads(printed("diagnose", bundle, "-o", "json"))
    fits(diagnosed, "diagnosis-1")
    for number, name in enumerate(name for name in texts if name.startswith("evidence/")):
        document = folder / f"document-{number}.json"
        document.write_text(texts[name])
        for reader in (["inspect", "--evidence"], ["diagnose"]):
            printed(*reader, document)
        again = folder / f"again-{number}.tar.gz"
        printed("inspect", "--evidence", document, "--out", again)
        assert json.loads(bundle_texts(again)[name]) == json.loads(texts[name])
        again.unlink()
    return found
