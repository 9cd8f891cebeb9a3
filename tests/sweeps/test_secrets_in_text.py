"""Some 360 made-up secrets in the surroundings in which they turn up in logs: none may come out.
And text that is no secret stays."""

from __future__ import annotations

import base64
import json
import random
import string
from pathlib import Path

import pytest
from case_rows import case_rows

from unhang.core.secrets_in_text import MASK, masked_document, without_secrets

ROWS = case_rows(__file__)

HOME = Path(__file__).resolve().parents[2]
LONGEST_LINE = 20_000
# the one token in the fixtures
PLANTED = (
    "BOOT_IMAGE=/vmlinuz-5.4.0-182-generic root=/dev/mapper/vg0-root ro quiet splash amd_iommu=on "
)
DRAW = random.Random(20261123)
ALNUM, HEX, BASE64 = (
    string.ascii_letters + string.digits,
    "0123456789abcdef",
    string.ascii_letters + string.digits + "+/",
)
UPPER = string.ascii_uppercase + string.digits


def some(count, letters=ALNUM):
    """Random letters, among them a digit and both cases where the alphabet has them."""
    text = "".join(DRAW.choice(letters) for _ in range(count - 3)) + DRAW.choice(
        [one for one in letters if one.isdigit()]
    )
    return text + "".join(
        DRAW.choice([one for one in letters if kind(one)] or letters)
        for kind in (str.islower, str.isupper)
    )


def pem(label, lines=6, last=20):
    """(block, lines of its body)"""
    body = [some(64, BASE64) for _ in range(lines)] + [some(last, BASE64) + "=="]
    return "\n".join([f"-----BEGIN {label}-----", *body, f"-----END {label}-----"]), body


FORMS = {
    "Hugging Face": lambda: f"hf_{some(34)}",
    "NVIDIA": lambda: f"nvapi-{some(64)}",
    "GitHub": lambda: f"ghp_{some(36)}",
    "GitHub app": lambda: f"ghs_{some(36)}",
    "GitHub fine": lambda: f"github_pat_{some(22)}_{some(59)}",
    "GitLab": lambda: f"glpat-{some(20)}",
    "GitLab runner": lambda: f"glrt-{some(20)}",
    "OpenAI": lambda: f"sk-{some(48)}",
    "OpenAI project": lambda: f"sk-proj-{some(48)}",
    "Anthropic": lambda: f"sk-ant-api03-{some(90)}",
    "Groq": lambda: f"gsk_{some(52)}",
    "Replicate": lambda: f"r8_{some(37)}",
    "Perplexity": lambda: f"pplx-{some(48)}",
    "Slack bot": lambda: f"xoxb-{some(11, string.digits)}-{some(24)}",
    "Slack app": lambda: f"xapp-1-{some(50)}",
    "AWS": lambda: f"AKIA{some(16, string.ascii_uppercase + string.digits)}",
    "AWS session": lambda: f"ASIA{some(16, string.ascii_uppercase + string.digits)}",
    "Google": lambda: f"AIza{some(35)}",
    "Google OAuth": lambda: f"ya29.{some(60)}",
    "Google client": lambda: f"GOCSPX-{some(28)}",
    "Azure client": lambda: f"{some(3)}8Q~{some(34)}",
    "Stripe": lambda: f"sk_live_{some(24)}",
    "SendGrid": lambda: f"SG.{some(22)}.{some(43)}",
    "Mailgun": lambda: f"key-{some(32, HEX)}",
    "npm": lambda: f"npm_{some(36)}",
    "PyPI": lambda: f"pypi-AgEIcHlwaS5vcmc{some(60)}",
    "DigitalOcean": lambda: f"dop_v1_{some(64, HEX)}",
    "Docker": lambda: f"dckr_pat_{some(27)}",
    "Tailscale": lambda: f"tskey-auth-{some(24)}",
    "Databricks": lambda: f"dapi{some(32, HEX)}",
    "age": lambda: f"AGE-SECRET-KEY-1{some(58, string.ascii_uppercase + string.digits)}",
    "Vault": lambda: f"hvs.{some(90)}",
    "Terraform": lambda: f"{some(14)}.atlasv1.{some(64)}",
    "Atlassian": lambda: f"ATATT3{some(100)}",
    "Grafana": lambda: f"glsa_{some(32)}_{some(8, HEX)}",
    "New Relic": lambda: f"NRAK-{some(27, string.ascii_uppercase + string.digits)}",
    "Shopify": lambda: f"shpat_{some(32, HEX)}",
    "Sentry": lambda: f"sntrys_{some(60)}",
    "JWT": lambda: f"eyJhbGciOiJIUzI1NiJ9.eyJ{some(40)}.{some(43)}",
    "GitLab flag": lambda: f"glffct-{some(20)}",
    "1Password": lambda: "A3-" + "-".join(some(count, UPPER) for count in (6, 11, 5, 5, 5)),
    "Airtable": lambda: f"pat{some(14)}.{some(64, HEX)}",
    "JFrog": lambda: f"AKCp{some(69)}",
    "JFrog reference": lambda: f"cmVmdGtu{some(56)}",
    "Bedrock": lambda: f"ABSK{some(128)}",
    "ClickHouse": lambda: f"4b1d{some(38)}",
    "Cloudflare origin": lambda: f"v1.0-{some(24, HEX)}-{some(146, HEX)}",
    "Dropbox": lambda: f"sl.u.{some(140)}",
    "Dynatrace": lambda: f"dt0c01.{some(24, UPPER)}.{some(64, UPPER)}",
    "EasyPost": lambda: f"EZAK{some(54)}",
    "Meta": lambda: f"EAAC{some(120)}",
    "Square": lambda: f"EAAA{some(60)}",
    "Flutterwave": lambda: f"FLWSECK-{some(32)}-X",
    "Fly": lambda: f"fm2_{some(120)}",
    "Grafana key": lambda: f"eyJrIjoi{some(72)}",
    "JWT in base64": lambda: base64.b64encode(FORMS["JWT"]().encode()).decode().rstrip("="),
    "Heroku": lambda: f"HRKU-AA{some(58)}",
    "Harness": lambda: f"pat.{some(22)}.{some(24, HEX)}.{some(20)}",
    "Infracost": lambda: f"ico-{some(32)}",
    "OpenShift": lambda: f"sha256~{some(43)}",
    "PlanetScale": lambda: f"pscale_tkn_{some(43)}",
    "Prefect": lambda: f"pnu_{some(36)}",
    "Pulumi": lambda: f"pul-{some(40, HEX)}",
    "Readme": lambda: f"rdme_{some(70, string.ascii_lowercase + string.digits)}",
    "Brevo": lambda: f"xkeysib-{some(64, HEX)}-{some(16)}",
    "Shippo": lambda: f"shippo_live_{some(40, HEX)}",
    "Vault before 1.10": lambda: f"s.{some(24)}",
    "Telegram bot": lambda: f"{some(10, string.digits)}:AA{some(33)}",
    "Twilio": lambda: f"SK{some(32, HEX)}",
    "Octopus": lambda: f"API-{some(26, UPPER)}",
    "Twitter": lambda: f"{'A' * 22}{some(90)}",
    "Plaid": lambda: (
        f"access-production-{some(8, HEX)}-{some(4, HEX)}-{some(4, HEX)}-{some(4, HEX)}-{some(12, HEX)}"
    ),
    "MaxMind": lambda: f"{some(6)}_{some(29)}_mmk",
    "Mailchimp": lambda: f"{some(32, HEX)}-us12",
    "kubeadm": lambda: (
        f"{some(6, string.ascii_lowercase + string.digits)}.{some(16, string.ascii_lowercase + string.digits)}"
    ),
}
AROUND = ROWS["AROUND"]
SPECIAL = {
    "wandb login": lambda: some(40, HEX),
    "Telegram": lambda: some(35),
    "slurm jwt": FORMS["JWT"],
    "token option": FORMS["kubeadm"],
}
SPECIAL |= {
    "GitLab session": lambda: some(32, HEX),
    "bundler": lambda: f"{some(8, HEX)}:{some(8, HEX)}",
}


def cases():
    """(name, text, the secrets in it)"""
    for name, make in FORMS.items():
        for text in ("{}", "W1123 worker said {} and ended", 'File "x.py", line 3: f("{}")'):
            secret = make()
            yield f"{name} in {text[:9]}", text.format(secret), [secret]
    for name, text in AROUND.items():
        secret = SPECIAL.get(name, lambda: some(24))()
        yield name, text.format(secret), [secret]
    for label in (
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "EC PRIVATE KEY",
        "PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ):
        block, body = pem(label)
        yield label, f"reading:\n{block}\ndone", body
        yield f"{label} in JSON", json.dumps({"x": block}), body
        yield f"{label} cut off", "\n".join(block.splitlines()[:-3]), body[:-2]
        yield f"{label} as a line of its own", f"before\n{body[0]}\nafter", body[:1]
        yield (
            f"{label} as base64",
            f"data: {base64.b64encode(block.encode()).decode()}",
            [base64.b64encode(block.encode()).decode()[20:]],
        )


CASES = list(cases())


def comes_out(text, secrets):
    """Whether eight letters in a row of a secret are in what is left."""
    left = without_secrets(text)
    return [
        secret
        for secret in secrets
        if any(secret[at : at + 8] in left for at in range(len(secret) - 7))
    ]


def test_the_page_has_the_counts():
    """Of this corpus and of the fixtures: logs, posts and files of machines as they were found."""
    # it is wrapped
    page = " ".join((HOME / "docs" / "security.md").read_text(encoding="utf-8").split())
    out = sum(bool(comes_out(text, secrets)) for _, text, secrets in CASES)
    lines = [
        line
        for path in sorted((HOME / "tests" / "fixtures").rglob("*"))
        if path.is_file()
        for line in path.read_text("utf-8", "replace").splitlines()
    ]
    changed = [line for line in lines if len(line) < LONGEST_LINE and without_secrets(line) != line]
    assert [line.split("registry_token=")[0] for line in changed] == [PLANTED], (
        "a line that holds no secret was changed"
    )
    assert len(lines) > 100_000
    assert (
        f"Of {len(CASES)} made-up secrets in their surroundings {out} come out; of more than"
        " 100,000 lines of the fixtures, which hold none, 0 are changed" in page
    )


@pytest.mark.parametrize(
    ("text", "secrets"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_no_secret_comes_out(text, secrets):
    assert comes_out(text, secrets) == []
    masked = without_secrets(text)
    assert MASK in masked
    assert without_secrets(masked) == masked


INNOCENT = """\
num_tokens=512 max_new_tokens: 4096 pad_token='<pad>' eos_token_id: 2 tokenizer: meta-llama/Llama-3.1-8B tokens_per_second=13421.7
self.tokenizer = AutoTokenizer.from_pretrained(path, token=None, use_auth_token=False)
throughput 12345 tokens/s, total_tokens=1048576, prompt_tokens: 17, token_type_ids=[0, 1]
the password was wrong; authentication failed: invalid token: expired
def login(user: str, password: str, token: Optional[str] = None) -> None:
File "/opt/conda/lib/python3.11/site-packages/secretstorage/__init__.py", line 12, in <module>
token_file=/var/run/secrets/kubernetes.io/serviceaccount/token secret_name: my-secret password_policy: strict
commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad, sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
GPU-8f2c1d3e-1111-2222-3333-444455556666 0000:1b:00.0 NCCL INFO comm 0x7f3a2c00a0e0 rank 3 nranks 8 commId 0x8d3f6a1e2b4c5d6f
NCCL_IB_HCA=mlx5_0,mlx5_1 NCCL_SOCKET_IFNAME=eth0 MASTER_ADDR=10.0.0.1 --master-port 29500 PWD=/home/me OLDPWD=/tmp
KeyError: 'model.layers.0.self_attn.q_proj.weight' key=layers.0 keys: 17 primary_key: id host_key=accepted monkey=1
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC8 is a public key; key exchange: curve25519-sha256
srun --account=ml --partition=train --ntasks-per-node=8 python train.py --seq-length 4096 --tokenizer-type Llama2Tokenizer --vocab-file /data/v.json
nvidia-smi -pm 1; export HF_HOME=/data/hf WANDB_MODE=offline token=${HF_TOKEN} password=$(cat /run/pw) api_key=***
sha256~ pul-request API-VERSION test_01 live_migration pat.model.layers.0 s.layers access-control eyJ v1.0-rc1 SKIPPED 4b1d0000 sl.rank dt0 nightly-us1
undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESsQx7Rb2 knvlinkUpdatePostRxDetectLinkMask_GH100 DeepSeek-R1-Distill-Llama-70B-FP8-H100
SHA256:q2XvJm4f9sYtLr0Zb8KdPw3hNcUe6Gia1oTs5RQxVyM GPU-8f2c1d3e-1111-2222-3333-444455556666 --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119
多卡部署DeepSeek-R1-Distill-Qwen-32B卡死
bootstrap.c:102 socket.c:538 torch.distributed.elastic.multiprocessing transport.net nvidia.driver0
"""


@pytest.mark.parametrize("length", [32, 40, 64])
@pytest.mark.parametrize("letters", [ALNUM, ALNUM + "-_"], ids=["letters", "with - and _"])
@pytest.mark.parametrize("prefix", ["", "nobody_", "NEVER-SEEN-"])
def test_a_token_of_an_issuer_nobody_has_heard_of_is_masked(prefix, letters, length):
    """By how it looks: 19 of 20 at least, because some draws look like a name."""
    draw = random.Random(length)
    tokens = [prefix + "".join(draw.choice(letters) for _ in range(length)) for _ in range(400)]
    assert sum(MASK in without_secrets(f"worker said {token} and ended") for token in tokens) >= 380


@pytest.mark.parametrize("line", INNOCENT.splitlines())
def test_what_is_no_secret_stays(line):
    assert without_secrets(line) == line


def test_a_document_is_masked_by_its_keys_too():
    given = {
        "password": "hunter2hunter2",
        "x": [{"why": "token: hunter3hunter3"}],
        "tokens": "4096",
        "key": "layers.0",
        "n": 1,
        "none": None,
    }
    assert masked_document(given) == {**given, "password": MASK, "x": [{"why": f"token: {MASK}"}]}


def test_a_token_beside_chinese_words_is_masked():
    assert without_secrets("密钥是aB3xK9pQ7mZ2vR8tY4wN6cL1dF5gH0jS了") == f"密钥是{MASK}了"
