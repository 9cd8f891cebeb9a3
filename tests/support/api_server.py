"""A real API server of Kubernetes: Debian's etcd, and kube-apiserver built once from Debian's
source package, which is all that Debian has of it. It takes two minutes and 1 GB for a while."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("go", "etcd", "openssl")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
RELEASE = Path("/etc/os-release")
if not RELEASE.exists() or "\nID=debian\n" not in f"\n{RELEASE.read_text(encoding='utf-8')}\n":
    MISSING.append("Debian")  # elsewhere the source package of this name is another thing
BUILD_S, DEADLINE_S = 1800, 120
INSIDE = "k8s.io/kubernetes"
# The one within the release writes past Go's iterator of a map since Go 1.18: the server dies now
# and then, as it encodes labels.
MENDED = "golang-github-modern-go-reflect2"
BUILD = 2  # counted up when the program that is built changes
ADMIN, ISSUER = "admin-of-the-tests", "https://kubernetes.default.svc"


def kube_apiserver(cache: Path) -> Path:
    """The program, built if it is not there yet."""
    built = cache / f"kube-apiserver-{BUILD}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.is_file():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                os.replace(_built(Path(folder)), built)
    return built


def _built(folder: Path) -> Path:
    source = folder / "src" / INSIDE
    source.parent.mkdir(parents=True)
    _download(folder)
    tree = _unpacked(folder, "kubernetes")
    os.replace(tree, source)
    shutil.rmtree(source / "vendor/github.com/modern-go/reflect2")
    os.replace(_unpacked(folder, MENDED), source / "vendor/github.com/modern-go/reflect2")
    version = tree.name.partition("-")[2]
    _go(
        folder,
        source,
        "-o",
        folder / "openapi-gen",
        f"{INSIDE}/vendor/k8s.io/kube-openapi/cmd/openapi-gen",
    )
    # what the release's own makefile generates before it builds
    _finished(
        [
            folder / "openapi-gen",
            *("-O", "zz_generated.openapi", "-h", "hack/boilerplate/boilerplate.generatego.txt"),
            *("-i", ",".join(sorted(_described(source)))),
            *("-p", f"{INSIDE}/pkg/generated/openapi", "-r", folder / "violations"),
        ],
        cwd=source,
        env=_variables(folder),
    )
    major, minor, _ = version.split(".")
    named = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(
        f"-X {INSIDE}/vendor/k8s.io/{of}/version.{name}={value}"
        for of in ("component-base", "client-go/pkg")
        for name, value in named.items()
    )
    argument = ("-ldflags", f"-s -w {flags}", "-o", folder / "built")
    _go(folder, source, *argument, f"{INSIDE}/cmd/kube-apiserver")
    return folder / "built"


def _described(source: Path) -> set[str]:
    """Packages whose types are in the server's OpenAPI."""
    found = set()
    for path in [
        *source.glob("staging/src/k8s.io/**/*.go"),
        *source.glob("pkg/**/*.go"),
        *source.glob("vendor/**/*.go"),
    ]:
        inside = path.relative_to(source).as_posix()
        if re.search(r"code-generator/|sample-|kube-openapi|_test\.go$", inside):
            continue
        if path.is_file() and b"+k8s:openapi-gen=" in path.read_bytes():
            package = os.path.dirname(inside)
            found.add(f"{INSIDE}/{package.replace('staging/src/', 'vendor/')}")
    return found


def _variables(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": str(folder),
        "GOCACHE": str(folder / "cache"),
        "CGO_ENABLED": "0",
    }


def _go(folder: Path, source: Path, *arguments) -> None:
    _finished(["go", "build", *arguments], cwd=source, env=_variables(folder))


def _unpacked(folder: Path, package: str) -> Path:
    """The tree of a source package."""
    (found,) = folder.glob(f"{package}_*.orig.tar.gz")
    with tarfile.open(found) as archive:
        (top,) = {name.partition("/")[0] for name in archive.getnames()}
        archive.extractall(folder, filter="tar")
    return folder / top


def _download(folder: Path) -> None:
    """The archives of the releases, by this machine's own sources of packages."""
    places, lists = folder / "sources", folder / "lists"
    places.mkdir()
    (lists / "partial").mkdir(parents=True)
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if path.suffix in (".list", ".sources") and path.is_file():
            text = path.read_text(encoding="utf-8")
            text = re.sub(
                r"(?m)^Types:.*", "Types: deb-src", re.sub(r"(?m)^deb ", "deb-src ", text)
            )
            (places / path.name).write_text(text, encoding="utf-8")
    apt = [
        "apt-get",
        *("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={places}"),
        *("-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"),
    ]
    _finished([*apt, "update"], cwd=folder)
    _finished([*apt, "source", "--download-only", "kubernetes", MENDED], cwd=folder)


def _finished(command, **options):
    done = subprocess.run(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BUILD_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, (command[:3], done.stdout[-3000:])


@dataclass(frozen=True)
class Server:
    """address: https://127.0.0.1:PORT; authority: the file of the certificate that it shows."""

    address: str
    authority: Path
    folder: Path

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]):
        """(status, type of the content, content) of a request as it is given, by ADMIN unless the
        headers say otherwise."""
        headers = {"Authorization": f"Bearer {ADMIN}", **headers}
        request = urllib.request.Request(f"{self.address}{path}", body, headers, method=method)
        trust = ssl.create_default_context(cafile=str(self.authority))
        try:
            answer = urllib.request.urlopen(request, timeout=60, context=trust)
        except urllib.error.HTTPError as problem:
            answer = problem
        with answer:
            return answer.status, answer.headers["Content-Type"], answer.read()

    def ask(self, method: str, path: str, body=None, token: str = ADMIN, kind: str = "json"):
        """(status, answer). kind: json, or merge-patch+json."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"}
        content = None if body is None else json.dumps(body).encode()
        code, _kind, text = self.send(method, path, content, headers)
        return code, json.loads(text)

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        asked |= {"spec": {"audiences": [ISSUER]}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return self.make(path, asked)[0]["status"]["token"]

    def make(self, path: str, *things):
        """The objects as the server keeps them."""
        made = []
        for thing in things:
            code, answer = self.ask("POST", path, thing)
            assert code in (200, 201), answer
            made.append(answer)
        return made


def write_kubeconfig(path: Path, cluster: dict[str, str], user: dict[str, str]) -> Path:
    """A kubeconfig with one context. cluster, user: as kubectl has them."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@contextlib.contextmanager
def api_server(program: Path, folder: Path):
    """A server without a controller and a kubelet, which lasts as long as the body: RBAC is in
    force, and ADMIN may do everything."""
    ports = [_free_port() for _ in range(3)]
    _finished(["openssl", "genrsa", "-out", folder / "sa.key", "2048"])
    (folder / "tokens").write_text(f'{ADMIN},admin,admin,"system:masters"\n', encoding="utf-8")
    client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
    store = [
        "etcd",
        *("--data-dir", folder / "etcd", "--initial-cluster", f"default={peer}"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
    ]
    serve = [
        program,
        f"--etcd-servers={client}",
        f"--cert-dir={folder / 'certs'}",
        *("--bind-address=127.0.0.1", f"--secure-port={ports[2]}"),
        *(f"--token-auth-file={folder / 'tokens'}", "--authorization-mode=RBAC"),
        *(f"--service-account-issuer={ISSUER}", f"--api-audiences={ISSUER}"),
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        f"--service-account-key-file={folder / 'sa.key'}",
        # its controller, which makes the accounts, does not run
        *("--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"),
    ]
    server = Server(f"https://127.0.0.1:{ports[2]}", folder / "certs" / "apiserver.crt", folder)
    with _running(store, folder / "etcd.log"), _running(serve, folder / "api.log") as child:
        until = time.monotonic() + DEADLINE_S
        while not _is_ready(server):
            log = (folder / "api.log").read_text(encoding="utf-8")
            assert child.poll() is None and time.monotonic() < until, log[-3000:]
            time.sleep(0.2)
        yield server


def _is_ready(server: Server) -> bool:
    try:
        return (
            server.authority.is_file() and server.ask("GET", "/api/v1/namespaces/default")[0] == 200
        )
    except OSError:
        return False


@contextlib.contextmanager
def _running(command, log: Path):
    with open(log, "wb") as target:
        child = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(20)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
