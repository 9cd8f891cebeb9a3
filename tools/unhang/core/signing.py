"""Signs admission records with ssh-keygen, and checks signatures. The private key stays
on the controller; only ssh-keygen reads it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.strict_json import NotStrict, read_bounded

MOST_KEY_BYTES = 64 * 1024
# namespace of the signature (ssh-keygen -n): a signature for another purpose is not accepted
NAMESPACE = "unhang-admission"
SIGNER = "gate"
DEADLINE_S = 60
GOOD, ANOTHER_KEY, TAMPERED = "good", "another key", "tampered"


def sign(line: str, key: Path) -> str:
    """The armoured signature of a line. key: the private key, or a public one whose private key an
    agent has. Raises UserError."""
    if not key.is_file():
        raise UserError(
            f"the gate's key {key} does not exist; make one with: ssh-keygen -t ed25519 -f {key}"
        )
    if key.stat().st_size > MOST_KEY_BYTES:
        raise UserError(f"the key {key} is larger than {MOST_KEY_BYTES} bytes")
    done = _ssh_keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], line)
    if done.returncode:
        raise UserError(
            f"{key}: ssh-keygen could not sign: {_last_line(done.stderr)}; give a readable private"
            " key, or load it into ssh-agent"
        )
    return done.stdout


def public_key(key: Path) -> str:
    """The public key that belongs to a key file, one line. Raises UserError."""
    beside = key if key.suffix == ".pub" else key.with_name(key.name + ".pub")
    try:
        text = read_bounded(beside, MOST_KEY_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError, NotStrict) as problem:
        why = (
            str(problem)
            if isinstance(problem, NotStrict)
            else getattr(problem, "strerror", None) or "it is no text"
        )
        raise UserError(f"the gate's public key {beside} cannot be read: {why}") from None
    line = next(
        (one.strip() for one in text.splitlines() if one.strip() and not one.startswith("#")), ""
    )
    if "PRIVATE KEY" in line or len(line.split()) < 2:
        raise UserError(f"{beside} is not a public key as ssh-keygen writes it (TYPE KEY COMMENT)")
    return line


def check(line: str, signature: str, key: str) -> str:
    """GOOD, ANOTHER_KEY or TAMPERED. key: the public key that is trusted, as public_key gives it.
    Raises UserError without ssh-keygen."""
    with tempfile.TemporaryDirectory(prefix="unhang-verify-") as folder:
        signers, armoured = Path(folder, "signers"), Path(folder, "signature")
        signers.write_text(
            f'{SIGNER} namespaces="{NAMESPACE}" {" ".join(key.split()[:2])}\n', encoding="utf-8"
        )
        armoured.write_text(signature, encoding="utf-8")
        common = ["-n", NAMESPACE, "-s", str(armoured)]
        if (
            _ssh_keygen(
                ["-Y", "verify", "-f", str(signers), "-I", SIGNER, *common], line
            ).returncode
            == 0
        ):
            return GOOD
        # The signature is valid, so another key has signed this line.
        return (
            ANOTHER_KEY
            if _ssh_keygen(["-Y", "check-novalidate", *common], line).returncode == 0
            else TAMPERED
        )


def _ssh_keygen(arguments: list[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        # In a session without a terminal, so that a key with a passphrase leads to an error and not
        # to a question that nobody sees.
        return subprocess.run(
            ["ssh-keygen", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise UserError(
            "ssh-keygen is not installed on this machine; install OpenSSH's client (8.1 or newer)"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"ssh-keygen gave no answer within {DEADLINE_S} s; a key with a passphrase takes an"
            " agent: ssh-add"
        ) from None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
