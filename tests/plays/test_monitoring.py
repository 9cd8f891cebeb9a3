"""The files of docs/monitoring/ with Debian's real Prometheus and Grafana: every alert, every query
of the dashboard, every metric name."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import five_situations
import page_commands
import pytest
import yaml

from unhang.audit.report.prometheus import render_prometheus

PROJECT = Path(__file__).resolve().parents[2]
MONITORING = PROJECT / "docs" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
PANELS = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
ALERTS = [
    rule
    for group in yaml.safe_load((MONITORING / "unhang.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
METRIC = re.compile(r"\bunhang_\w+")
DEADLINE_S = 240


@pytest.fixture(scope="module")
def programs():
    """Folder with prometheus and promtool: this machine's, or Debian's package, unpacked but not
    installed."""
    if found := shutil.which("prometheus"):
        return Path(found).parent
    place = PROJECT / ".cache" / "prometheus"
    if not (place / "usr" / "bin" / "promtool").exists():
        policy = (
            subprocess.run(
                ["apt-cache", "policy", "prometheus"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            ).stdout
            if shutil.which("apt-cache")
            else ""
        )
        if not re.search(r"Candidate: [^(]", policy):
            pytest.skip("no prometheus here, and apt has none")
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["apt-get", "-q", "download", "prometheus"],
            cwd=place,
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        (package,) = place.glob("prometheus_*.deb")
        subprocess.run(
            ["dpkg-deb", "--extract", package, place],
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        package.unlink()
    return place / "usr" / "bin"


@pytest.fixture(scope="module")
def found():
    """The fleet that contains every kind of fault."""
    return five_situations.fleet()[0]


@pytest.fixture(scope="module")
def metrics(found):
    return render_prometheus(found, most_nodes=3, labels={"cluster": "here"})


@pytest.fixture(scope="module")
def ask(programs, metrics, tmp_path_factory):
    """Queries a Prometheus that scrapes the metrics and has the alerts: takes path and parameters,
    returns the `data` of the answer."""
    folder = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    with served(metrics) as target:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(MONITORING / "unhang.rules.yml")],
            "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            programs / "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (folder / "log").open("w") as log:
            running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            asked = asking(f"http://127.0.0.1:{port}/api/v1/", running, folder / "log")
            until(
                lambda: (
                    value_of(asked("query", query="min(count_over_time(unhang_nodes[1h]))")) >= 2
                ),
                folder / "log",
            )
            until(
                lambda: all(
                    rule["lastEvaluation"] > "1970" for rule in asked("rules")["groups"][0]["rules"]
                ),
                folder / "log",
            )
            yield asked
        finally:
            running.kill()
            running.wait()


def asking(address, running, log):
    def ask(path, **parameters):
        assert running.poll() is None, log.read_text()[-3000:]
        with urllib.request.urlopen(
            f"{address}{path}?{urllib.parse.urlencode(parameters)}", timeout=DEADLINE_S
        ) as answer:
            return json.load(answer)["data"]

    return ask


def value_of(data):
    return float(data["result"][0]["value"][1]) if data["result"] else 0


def until(holds, log):
    """Waits until it is true; an error of a program that is not ready counts as false."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            if holds():
                return
        except OSError:
            pass  # it does not listen yet
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class served:
    """Serves the text as node_exporter does; gives host and port."""

    def __init__(self, text):
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{self.server.server_port}"

    def __exit__(self, *problem):
        self.server.shutdown()
        self.server.server_close()


def promtool(programs, *argv, text=None):
    return subprocess.run(
        [programs / "promtool", *argv],
        cwd=MONITORING,
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_promtool_takes_the_alerts_and_each_fires_as_its_example_says(programs):
    checked = promtool(programs, "check", "rules", "unhang.rules.yml")
    assert checked.returncode == 0 and f"{len(ALERTS)} rules found" in checked.stdout, (
        checked.stdout + checked.stderr
    )
    tested = promtool(programs, "test", "rules", "unhang.rules.test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    examples = [
        one
        for test in yaml.safe_load((MONITORING / "unhang.rules.test.yml").read_text())["tests"]
        for one in test["alert_rule_test"]
    ]
    assert {one["alertname"] for one in examples if one.get("exp_alerts")} == {
        one["alert"] for one in ALERTS
    }
    assert {one["alertname"] for one in examples if not one.get("exp_alerts")} == {
        one["alert"] for one in ALERTS
    }


def test_promtool_finds_nothing_to_say_of_the_metrics(programs, metrics):
    checked = promtool(programs, "check", "metrics", text=metrics)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_alerts_dashboard_and_page_name_metrics_that_there_are(metrics):
    there = {line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")}
    assert {name for _, query in QUERIES for name in METRIC.findall(query)} == there
    assert {name for rule in ALERTS for name in METRIC.findall(rule["expr"])} <= there
    assert {*page_commands.shown()["metrics"]} == there


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_each_query_of_the_dashboard_returns_its_series(ask, title, query):
    typed = query.replace("$cluster", ".*").replace("$__range", "1h")
    assert "$" not in typed
    rows = ask("query", query=typed)["result"]
    assert rows, typed
    legends = {
        target["legendFormat"]
        for panel in PANELS
        if panel["title"] == title
        for target in panel["targets"]
    }
    labels = {name for legend in legends for name in re.findall(r"\{\{(\w+)\}\}", legend)}
    assert all(labels <= set(row["metric"]) for row in rows)


def test_a_query_shows_the_numbers_of_the_run_and_a_choice_of_cluster_chooses(ask, found):
    query = next(query for title, query in QUERIES if title == "Nodes by verdict")
    rows = ask("query", query=query.replace("$cluster", "here"))["result"]
    assert {row["metric"]["verdict"]: int(row["value"][1]) for row in rows} == {
        name: len(hosts) for name, hosts in found["node_verdicts"].items()
    }
    assert ask("query", query=query.replace("$cluster", "elsewhere"))["result"] == []
    assert ask("label/cluster/values") == ["here"]


def test_alerts_are_evaluated_and_those_of_this_fleet_fire(ask):
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert [rule["health"] for rule in rules] == ["ok"] * len(ALERTS), rules
    states = {rule["name"]: rule["state"] for rule in rules}
    assert (
        states["UnhangNodesCritical"],
        states["UnhangAuditOld"],
        states["UnhangAuditMissing"],
    ) == ("firing", "firing", "inactive")
    assert states["UnhangNodesUnread"] == "pending"


def test_the_dashboard_is_one_that_grafana_takes():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert {panel["type"] for panel in PANELS} <= {"stat", "timeseries", "bargauge", "table"}
    cells = [
        (x, y)
        for one in (panel["gridPos"] for panel in PANELS)
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    sources = {
        json.dumps(one["datasource"]) for panel in PANELS for one in (panel, *panel["targets"])
    }
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "cluster"]
