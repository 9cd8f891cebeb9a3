"""--webhook and --hook: new and resolved findings are sent once, known ones are not, and a hook
never changes how the command ends."""

from __future__ import annotations

import http.server
import json
import os
import shlex
import ssl
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path

import pytest
from msgspec import ValidationError
from run_folders import Fleet, facts, finding

from unhang import cli
from unhang.audit.commands.run_news import report_run
from unhang.audit.history.changes import FoundChange
from unhang.audit.history.news import MOST_ROWS, news_of
from unhang.audit.history.runs import PastRun
from unhang.core.commands.hook_orphans import call_and_end_all
from unhang.core.commands.hooks import HOOK_S, Hooks, post
from unhang.core.commands.webhook_forms import body_for
from unhang.core.schemas.check import check_schema

RUNS = [
    PastRun(f"run{number}", Path(), "2026-11-20T03:00:00Z", None, None, (), frozenset())
    for number in (1, 2)
]
NEWS = {"schema": "unhang/news/1", "new": [{"rule": "bad"}], "text": "unhang: 1 new"}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Runs that are made one by one: (findings) -> the run's folder."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    made = Fleet(tmp_path)

    def run(*findings):
        folder = made.run({"gpu1": facts(), "gpu2": facts()}, list(findings))
        (folder.parent / "latest").unlink(missing_ok=True)
        (folder.parent / "latest").symlink_to(folder.name)
        return folder

    return run


@pytest.fixture
def diff(capsys):
    """`unhang history diff` on it: (exit code, standard error)."""

    def run(*argv):
        code = cli.main(["history", "diff", "-q", *argv])
        return code, capsys.readouterr().err

    return run


@pytest.fixture
def hook(tmp_path):
    """A hook that appends its input to a file: (its command, the function that reads the file)."""
    file = tmp_path / "given"
    program = tmp_path / "hook.sh"
    program.write_text(f"#!/bin/sh\ncat >> {file}\necho >> {file}\n")
    program.chmod(0o755)
    return str(
        program
    ), lambda: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Server:
    """A webhook: what was posted to it, and how it answers."""

    def __init__(self):
        self.posted, self.answer, self.headers, self.held = [], 200, {}, threading.Event()
        outer = self

        class Page(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.posted.append(
                    (self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                )
                if outer.answer is None:
                    outer.held.wait()
                    return
                self.send_response(outer.answer)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}/services/T0/S3CRET"


@pytest.fixture
def webhook():
    made = Server()
    threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.held.set()
    made.server.shutdown()
    made.server.server_close()


def test_only_what_is_new_or_resolved_is_reported_and_nothing_when_nothing_is(fleet, diff, hook):
    command, given = hook
    fleet(finding("bad", "gpu1"), finding("known", "gpu1"))
    fleet(finding("worse", "gpu2", severity="critical"), finding("known", "gpu1"))
    assert diff("--hook", command) == (1, "")
    (news,) = given()
    assert list(check_schema(news, "news-1")) == []
    assert [
        (row["change"], row["rule"], row["nodes"]) for row in (*news["new"], *news["resolved"])
    ] == [("new", "worse", "gpu2"), ("resolved", "bad", "gpu1")]
    assert news["text"].splitlines()[1:] == [
        "NEW critical: gpu2: What worse says [worse]",
        "RESOLVED error: gpu1: What bad says [bad]",
    ]
    fleet(finding("worse", "gpu2", severity="critical"), finding("known", "gpu1"))
    assert diff("--hook", command) == (0, "")
    assert len(given()) == 1


def test_lesser_findings_than_fail_on_are_not_told(fleet, diff, hook):
    command, given = hook
    fleet()
    fleet(finding("bad", "gpu1", severity="info"), finding("worse", "gpu2", severity="warning"))
    diff("--hook", command, "--fail-on", "error")
    assert given() == []
    diff("--hook", command)
    assert [row["rule"] for row in given()[0]["new"]] == ["worse"]


def test_a_webhook_gets_the_same_from_an_address_in_a_file(fleet, diff, webhook, tmp_path):
    fleet()
    fleet(finding("bad", "gpu1"))
    (tmp_path / "address").write_text(webhook.address + "\n")
    assert diff("--webhook", f"@{tmp_path}/address") == (1, "")
    ((path, news),) = webhook.posted
    assert path == "/services/T0/S3CRET" and [row["rule"] for row in news["new"]] == ["bad"]


@pytest.mark.parametrize("status", [500, 404, 302])
def test_an_address_that_refuses_is_one_line_without_the_address_and_the_exit_code_stays(
    fleet, diff, webhook, status
):
    webhook.answer, webhook.headers = status, {"Location": webhook.address}
    fleet()
    fleet(finding("bad", "gpu1"))
    code, errors = diff("--webhook", webhook.address)
    assert code == 1 and errors.count("\n") == 1
    assert f"webhook of 127.0.0.1: it answered {status}, not 2xx; to send it again:" in errors
    assert "S3CRET" not in errors
    assert len(webhook.posted) == 1  # a redirection is not followed


def test_a_webhook_that_does_not_answer_is_given_up(webhook):
    webhook.answer = None
    assert post(webhook.address, NEWS, limit_s=0.5) == "no answer came within 0.5 s"


def test_a_webhook_that_nobody_serves_is_said_without_its_address():
    output = post("http://127.0.0.1:1/services/S3CRET", NEWS)
    assert output == "no answer came: Connection refused"


def test_a_hook_that_fails_says_its_last_line_with_secrets_masked():
    output = call_and_end_all(
        ["sh", "-c", "echo first; echo token=abcdef123456 refused >&2; exit 7"], NEWS
    )
    assert output == "it ended with exit code 7, not 0: token=<secret> refused"


def test_a_hook_that_prints_without_end_is_bounded_and_one_that_reads_nothing_is_no_fault():
    assert call_and_end_all(
        ["sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x; exit 1"], NEWS, HOOK_S
    ).startswith("it ended with exit code 1, not 0: xxxx")
    assert call_and_end_all(["true"], {**NEWS, "text": "x" * 10_000_000}) is None
    assert (
        call_and_end_all(["/nonexistent/hook"], NEWS)
        == "the program could not be started: No such file or directory"
    )


def test_no_shell_reads_a_hooks_words(tmp_path):
    assert (
        call_and_end_all(
            shlex.split(
                f"{sys.executable} -c 'import sys; sys.exit(sys.argv[1] != \"$(reboot);\")'"
                " '$(reboot);'"
            ),
            NEWS,
        )
        is None
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("--webhook", "ftp://x/S3CRET"),
        ("--webhook", "file:///etc/passwd"),
        ("--webhook", "@/nonexistent"),
        ("--hook", "'"),
        ("--hook", ""),
        ("--hook", "/nonexistent/page --team gpu"),
        ("--hook", "/etc/passwd"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_done(fleet, diff, argv):
    fleet()
    code, errors = diff(*argv)
    assert code == 2 and errors.startswith(f"unhang: {argv[0]}") and "S3CRET" not in errors


@pytest.mark.slow
def test_secrets_in_what_was_found_are_masked_and_a_message_has_an_end():
    changes = [
        FoundChange(
            "new",
            "error",
            f"r{number}",
            "t",
            {},
            "password=hunter22 " + "x" * 5000,
            (f"gpu{number}",),
        )
        for number in range(5000)
    ]
    news = news_of(*RUNS, changes, "warning")
    assert "hunter22" not in json.dumps(news) and "password=<secret>" in json.dumps(news)
    assert (len(news["new"]), news["new_count"]) == (MOST_ROWS, 5000)
    assert len(json.dumps(news)) < 200_000
    assert news["text"].splitlines()[-1] == "and 4980 more"
    assert list(check_schema(news, "news-1")) == []


def test_an_audit_tells_what_its_run_changed_and_the_first_run_nothing(
    fleet, hook, tmp_path, capsys
):
    command, given = hook
    asked = Hooks([], [command]), "warning"
    report_run(fleet(finding("bad", "gpu1")), *asked)
    assert given() == [] and "the first run of its inventory" in capsys.readouterr().err
    report_run(fleet(finding("bad", "gpu1"), finding("worse", "gpu2")), *asked)
    assert [row["rule"] for news in given() for row in news["new"]] == ["worse"]
    report_run(tmp_path, *asked)  # no run folder
    assert capsys.readouterr().err.startswith("unhang: no hook was called: ")


@pytest.mark.parametrize("place", ["/dev/zero", "a pipe", "a large file", "a folder"])
def test_an_address_is_read_from_a_small_regular_file_alone(tmp_path, capsys, place):
    path = tmp_path / "address"
    if place == "a pipe":
        os.mkfifo(path)
    elif place == "a large file":
        path.write_text("x" * 100_000)
    elif place == "a folder":
        path.mkdir()
    else:
        path = place
    assert cli.main(["audit", "--webhook", f"@{path}"]) == 2
    assert " is not a file with an address in its first line" in capsys.readouterr().err


STARTS_A_SESSION = """import os,sys,time
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0:
    print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
    {}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rest", "expected"),
    [("", None), ("time.sleep(3000)", "it did not end within 3 s; it was killed")],
)
def test_a_process_of_a_hook_that_starts_its_own_session_and_never_ends_ends_with_it(
    tmp_path, rest, expected
):
    program = (
        STARTS_A_SESSION.format("time.sleep(3000)")
        + f"\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n{rest}\n"
    )
    beside = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    why = call_and_end_all([sys.executable, "-c", program, str(tmp_path / "pid")], NEWS, limit_s=3)
    assert why == expected
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert beside.poll() is None, "another child of unhang is none of the hook's"
    beside.communicate(b"\n")


@pytest.mark.parametrize(
    ("status", "why"),
    [(200, None), (407, "it answered 407, not 2xx"), (302, "it answered 302, not 2xx")],
)
def test_a_proxy_of_the_environment_gets_the_message_once_and_its_answer_is_not_followed(
    webhook, monkeypatch, status, why
):
    webhook.answer, webhook.headers = (
        status,
        {"Location": webhook.address, "Proxy-Authenticate": "Basic"},
    )
    monkeypatch.setenv(
        "http_proxy",
        webhook.address.replace("http://", "http://me:pr0xySECRET@").partition("/services")[0],
    )
    output = post("http://hooks.invalid/services/S3CRET", NEWS)
    assert output == why
    assert [path for path, _ in webhook.posted] == ["http://hooks.invalid/services/S3CRET"]


@pytest.mark.parametrize(
    "proxy",
    [
        "http://127.0.0.1:1",
        "file:///etc/passwd",
        "ftp://127.0.0.1:1",
        "http://[",
        "127.0.0.1:x",
        "http://127.0.0.1:1\n",
    ],
)
def test_a_proxy_that_is_none_is_said_without_the_address(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    output = post("http://hooks.invalid/services/S3CRET", NEWS)
    assert output and output.startswith("no answer came: ") and "S3CRET" not in output


@pytest.fixture
def tls(webhook, tmp_path):
    """A webhook under https whose certificate is of hooks.example.org, and made by nobody that this
    machine knows: (address, file of the certificate)."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    named = "-subj /CN=hooks.example.org -addext subjectAltName=DNS:hooks.example.org"
    words = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {named} -keyout {key} -out"
        f" {certificate}"
    )
    subprocess.run(words.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    webhook.server.socket = context.wrap_socket(webhook.server.socket, server_side=True)
    return webhook.address.replace("http://127.0.0.1", "https://localhost"), certificate


@pytest.mark.parametrize("is_known", [False, True])
def test_a_name_that_leads_to_another_machine_gets_nothing_under_https(
    webhook, tls, monkeypatch, is_known
):
    """What DNS rebinding does: the name of the webhook leads to a server that has another
    certificate."""
    address, certificate = tls
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    output = post(address, NEWS)
    assert (
        output.startswith("no answer came: [SSL: CERTIFICATE_VERIFY_FAILED]")
        and "S3CRET" not in output
    )
    assert webhook.posted == []


def test_an_answer_of_another_service_behind_the_name_is_not_shown(webhook):
    """What DNS rebinding does under http: a service of the inner network answers; only its status
    is told."""
    webhook.answer, webhook.headers = 401, {"X-Inner": "token=S3CRET"}
    assert post(webhook.address, NEWS) == "it answered 401, not 2xx"


VERDICT = {
    "schema": "unhang/evidence-short/1",
    "by": "watch",
    "verdict": {"word": "hung", "headline": "hung: rank 1 on <n2>: it sleeps & waits"},
    "next": {"host": "n2", "command": "py-spy dump --locals --pid 7"},
    "full": "/out/hang.tar.gz",
}
LINES = [
    "unhang watch: hung: rank 1 on <n2>: it sleeps & waits",
    "next, on n2: py-spy dump --locals --pid 7",
    "evidence: /out/hang.tar.gz",
]


def test_slack_gets_a_message_of_its_own_form(webhook, monkeypatch):
    """Through a proxy, which shows what is sent to the address."""
    monkeypatch.setenv("http_proxy", webhook.address.partition("/services")[0])
    assert post("http://hooks.slack.com/services/S3CRET", VERDICT) is None
    escaped = "\n".join(LINES).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert webhook.posted == [("http://hooks.slack.com/services/S3CRET", {"text": escaped})]


@pytest.mark.parametrize(
    "host",
    ["prod-1.westeurope.logic.azure.com", "a.b.api.powerplatform.com", "x.webhook.office.com"],
)
def test_teams_gets_a_card_whose_text_makes_no_link(host):
    message = json.loads(body_for(f"https://{host}:443/workflows/S3CRET", VERDICT))
    [attachment] = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    blocks = attachment["content"]["body"]
    assert {block["type"] for block in blocks} == {"RichTextBlock"}
    assert [block["inlines"][0]["text"] for block in blocks] == LINES


@pytest.mark.parametrize(
    "host", ["chat.example", "hooks.slack.com.evil.example", "notlogic.azure.com", "127.0.0.1"]
)
def test_other_addresses_get_the_document(host):
    assert json.loads(body_for(f"https://{host}/x", NEWS)) == NEWS


def test_text_of_news_is_sent_as_it_is_and_has_an_end():
    news = {**NEWS, "text": "unhang: 1 new\n" + "x" * 99_999}
    text = json.loads(body_for("https://hooks.slack.com/x", news))["text"]
    assert text.startswith("unhang: 1 new\n") and len(text) < 13_000


def test_an_option_of_another_type_than_its_field_is_refused():
    with pytest.raises(ValidationError, match="webhook"):
        Hooks.of(Namespace(webhook=None, hook=[]))
