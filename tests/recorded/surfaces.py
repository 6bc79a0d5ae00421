"""What every surface answers: commands in all forms, the read API, the pages and the metrics.

    python -m tests.recorded.surfaces                  write tests/recorded/surfaces.json.gz with the code of this tree
    python -m tests.recorded.surfaces --deployment     make the deployment that is asked about again, too
    python -m tests.recorded.surfaces --to DIR         write every answer into DIR, to compare two trees with diff -r

Tables are those of deployment.py and state.py, loaded into an emulated account at a fixed instant. Answers of commands
have the exit code and both streams, piped and on terminals of 80 columns (without colours) and of 120 (with them).
Only the three imports below name the program's own modules.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import logging
import os
import pickle
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from chalice.test import Client
from moto import mock_aws

from app import app
from chalicelib.command.main import main as outscaler
from chalicelib.runtime.runtime import from_environment, install
from infra.emulators.aws import create_table
from tests.recorded import state
from tests.recorded.plans import Case, cases

FILE = Path(__file__).parent / "surfaces.json.gz"
TABLE, NOW = "example", 1_795_000_000.0
"""Of deployment.py."""
RECORDED_NOW = state.NOW + 120.0
KEY, BEARER = "k" * 40, "bearer-of-the-recording"
PIPED, NARROW, BROAD = 0, 80, 120
"""Columns of a terminal; PIPED is none."""
TEXTS, DATA = ("table", "wide"), ("json", "yaml")
_READS = ("Get", "BatchGet", "Query", "Scan", "Describe")
_LINK, _ASSET = re.compile(r"/ui/open/[\w.-]+"), re.compile(r"(static/\w+)-[0-9a-f]{16}")

Answers = dict[str, list[str]]


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


class Place:
    """An emulated account with tables, an empty working directory, and the clock: what commands and routes meet."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, now: float) -> None:
        self.folder, self.now, self._patch = folder, now, patch
        self.rounds = 0
        self.answers: Answers = {}

    def command(self, *words: str, columns: int = PIPED, title: str = "") -> None:
        """Record what a command answers."""
        out: io.StringIO = Terminal() if columns else io.StringIO()
        err = io.StringIO()
        with self._patch.context() as patch:
            patch.setenv("COLUMNS", str(columns or NARROW))
            if columns == BROAD:
                patch.delenv("NO_COLOR")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = outscaler(words)
        name = (title or " ".join(("outscaler", *words))) + (f", {columns} columns" if columns else "")
        assert name not in self.answers, name
        assert str(self.folder) not in out.getvalue() + err.getvalue(), f"{name} names a folder of this machine"
        self.answers[name] = [
            f"exit {code}",
            *out.getvalue().splitlines(),
            *(f"stderr: {line}" for line in err.getvalue().splitlines()),
        ]

    def forms(self, *words: str, forms: Sequence[str] = (*TEXTS[:1], *DATA), path: str = "") -> None:
        """Record an answer in these forms, texts in every width. path: also this one of jsonpath."""
        for form in (*forms, *([f"jsonpath={path}"] if path else ())):
            for columns in (PIPED, NARROW, BROAD) if form in TEXTS else (PIPED,):
                self.command(*words, *(() if form == "table" else ("-o", form)), columns=columns)

    def set(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self._patch.setenv(name, value)

    def watched(self, *words: str, rounds: int = 1) -> None:
        """Record a command that looks again, ten minutes later each time, until Ctrl-C."""
        self.rounds, before = rounds, self.now
        self.command(*words)
        self.now = before

    def slept(self, _: float) -> None:
        """What waiting does."""
        self.rounds -= 1
        if self.rounds < 0:
            raise KeyboardInterrupt
        self.now += 600.0


@contextlib.contextmanager
def place(items: Mapping[str, Any] | None = None, table: str = TABLE, now: float = NOW) -> Iterator[Place]:
    """A place with these items; without any there is no account."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith(("OUTSCALER_", "AWS_"))]:
            patch.delenv(name)
        for name, value in _environment(folder).items():
            patch.setenv(name, value)
        stack.callback(time.tzset)
        time.tzset()
        patch.chdir(folder)
        made = Place(patch, folder, now)
        if items is not None:
            stack.enter_context(mock_aws())
            patch.setenv("OUTSCALER_TABLE", table)
            _load(items, table)
            _remember_reads(patch)
        patch.setattr(time, "time", lambda: made.now)
        patch.setattr(time, "sleep", made.slept)
        patch.setattr(time, "perf_counter", lambda: 0.0)
        yield made


def _environment(folder: Path) -> dict[str, str]:
    return {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_PAGE_KEY": "outscaler/page",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": "settings",
        "TZ": "Europe/Zurich",
        "TERM": "xterm",
        "NO_COLOR": "1",
    }


def _load(items: Mapping[str, Any], table: str) -> None:
    client = boto3.client("dynamodb")
    create_table(client, table)
    state.load(client, dict(items))
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(Name="outscaler/page", SecretString=KEY)
    secrets.create_secret(Name="outscaler/filled/webhook", SecretString=json.dumps({"bearer": BEARER}))


def _remember_reads(patch: pytest.MonkeyPatch) -> None:
    """Answer a request that reads what was read since the last write from memory: an emulated one takes most of the
    time of a command."""
    kind = botocore.client.BaseClient
    ask, known = vars(kind)["_make_api_call"], dict[tuple[str, str], bytes]()

    def remembered(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        if not operation.startswith(_READS):
            known.clear()
            return ask(client, operation, parameters)
        key = (operation, repr(parameters))
        if key not in known:
            known[key] = pickle.dumps(ask(client, operation, parameters))
        return pickle.loads(known[key])

    patch.setattr(kind, "_make_api_call", remembered)


# -- get


def _get(items: Mapping[str, Any]) -> Answers:
    with place(items) as here:
        every = (*TEXTS, "name", *DATA)
        here.command("get")
        here.forms("get", "clusters", forms=every, path='{range [*]}{.name} {.health}{"\\n"}{end}')
        here.forms("get", "claims", forms=every, path="{[*].key}")
        for cluster in ("prod", "filled"):
            here.forms("get", "groups", cluster, forms=every, path="{[*].group}")
            here.forms("get", "nodes", cluster, forms=every, path="{.nodes[*].node}")
            here.forms("get", "pods", cluster, forms=every, path="{.pods[*].pod}")
            here.forms("get", "operations", cluster, forms=every, path="{[*].id}")
            here.forms("get", "policy", cluster, forms=every, path="{.version}")
            here.forms("get", "breaker", cluster, forms=every, path="{.name}")
        for kind in ("groups", "nodes", "pods"):
            here.command("get", kind, "reasons")
            here.command("get", kind, "reasons", "-o", "json")
            here.command("get", kind, "reasons", columns=BROAD)
        for cluster in ("shop", "staging", "edge", "lab"):
            for kind in ("groups", "pods", "operations", "breaker"):
                here.command("get", kind, cluster)
        here.command("get", "nodes", "lab")
        here.forms("get", "nodes", "shop", forms=TEXTS)
        for words in _CHOSEN:
            here.command("get", *words)
        here.watched("get", "groups", "prod", "-w", rounds=2)
        here.watched("get", "clusters", "-w", "-o", "json", rounds=2)
        return here.answers


_CHOSEN = (
    *(("clusters", "-l", selector) for selector in ("mode=active", "health!=ok", "mode=shadow,health=ok", "color=red")),
    *(("groups", "prod", "-l", selector) for selector in ("machine=m5.large", "name=gpu", "provider!=clusterapi")),
    *(
        ("groups", "prod", "-l", selector)
        for selector in ("spot=yes", "state=growing", "zone=ch-gva-2", "group=web", "x")
    ),
    *(
        ("nodes", "prod", "-l", selector)
        for selector in ("decision=stays", "due=drifted", "group=web", "machine!=m5.large")
    ),
    *(("nodes", "prod", "-l", selector) for selector in ("spot=yes", "zone=cn-north-4a", "name=web-0")),
    *(("pods", "prod", "-l", selector) for selector in ("decision=no-place", "namespace=ml", "pod=a")),
    *(("operations", "prod", "-l", selector) for selector in ("group=web", "kind=grow", "state!=waiting", "step=poll")),
    *(("claims", "-l", selector) for selector in ("cluster=prod", "provider=exoscale", "key=a")),
    ("gr/web", "prod"),
    ("no", "prod", "web-0", "arm-1"),
    ("po", "prod", "train-huge-0"),
    ("op", "prod", "grow-5be1f0a2"),
    ("cl", "prod", "edge"),
    ("groups", "prod", "wbe"),
    ("nodes", "prod", "web-99"),
    ("clusters", "prdo"),
    ("groups", "prdo"),
    ("groups",),
    ("brake", "prod"),
    ("policy", "prod", "-w"),
    ("policy", "prod", "-l", "a=b"),
    ("nodes", "prod", "-o", "jsonpath={.nodes[0}"),
)
"""Words of `get` that choose rows, and some that are refused."""


# -- history, cost, shadow


def _history(items: Mapping[str, Any]) -> Answers:
    with place(items) as here:
        for cluster in ("prod", "filled"):
            here.forms("history", cluster, path="{.journal[*].kind}")
            here.forms("history", cluster, "--all", "--limit", "100", path="{.versions[*].digest}")
        for kind in ("plan", "operation", "pass", "policy", "pause", "resume", "retry", "release", "accept", "wake"):
            here.command("history", "prod", "--kind", kind)
        for words in (
            ("--kind", "pause", "--kind", "policy"),
            ("--group", "gpu"),
            ("--group", "wbe"),
            ("--operation", "grow-5be1f0a2"),
            ("--operation", "op-03"),
            ("--since", "1h"),
            ("--limit", "3"),
            ("--limit", "0"),
            ("--since", "90d"),
            ("--compare",),
        ):
            here.command("history", "prod", *words)
        for cluster in ("shop", "staging", "edge", "lab", "reasons", "prdo"):
            here.command("history", cluster)
        here.watched("history", "prod", "--follow", "--limit", "5")
        here.watched("history", "prod", "--follow", "--limit", "100", "-o", "json")
        return here.answers


def _money(items: Mapping[str, Any]) -> Answers:
    with place(items) as here:
        for cluster in ("prod", "shop"):
            here.forms("cost", cluster, forms=(*TEXTS, *DATA), path="{.bills[*].currency}")
            here.forms("cost", cluster, "--days", "7")
        for key in ("pool", "namespace", "owner", "node"):
            here.command("cost", "shop", "--by", key)
        for words in _BILLS:
            here.command("cost", *words)
        here.forms("shadow", "edge", path="{.matches[*].id}")
        here.forms("history", "edge", "--compare", "--since", "5d")
        here.command("shadow", "edge", "--since", "36h")
        here.command("shadow", "prod")
        for words in _ACCEPTED:
            here.command("shadow", *words)
        here.command("shadow", "edge", title="shadow edge, after two were accepted")
        for word in ("open", "dead", "test"):
            here.command("notify", word, "prod")
        here.forms("advise", "prod")
        here.command("advise", "reasons")
        return here.answers


_BILLS: tuple[tuple[str, ...], ...] = (
    (),
    ("staging",),
    ("filled",),
    ("filled", "-o", "json"),
    ("prdo",),
    ("prod", "--days", "90"),
    ("prod", "--policy", "x.yaml"),
    ("prod", "--with-policy", "x.yaml"),
)
"""Words of `cost`."""
_ACCEPTED = (("accept", "edge", "00000008"), ("accept", "edge/web-9"), ("accept", "edge", "nothing"), ("a", "b"))
"""Words of `shadow`."""


# -- changes


def _changed(items: Mapping[str, Any]) -> Answers:
    with place(items) as here:
        queue = boto3.client("sqs").create_queue(QueueName="reconcile")["QueueUrl"]
        here.set("OUTSCALER_QUEUE_RECONCILE", queue)
        (here.folder / "shop.yaml").write_text(_GOOD)
        for words in _CHANGES:
            here.command(*words)
        for kind in ("clusters", "breaker prod", "groups prod", "groups staging", "policy shop"):
            here.command("get", *kind.split(), title=f"get {kind}, after the changes")
        for cluster in ("prod", "shop", "staging"):
            here.forms("history", cluster, "--since", "1h")
        return here.answers


_CHANGES: tuple[tuple[str, ...], ...] = (
    ("apply", "shop.yaml", "--dry-run"),
    ("apply", "shop.yaml"),
    ("apply", "shop.yaml", "-o", "json"),
    ("apply", "wrong.yaml"),
    ("pause", "prod", "--for", "2h", "--reason", "release test"),
    ("pause", "prod", "--removals", "--group", "web", "--reason", "sale", "-o", "yaml"),
    ("pause", "prod", "--growth", "--group", "wbe", "--reason", "sale"),
    ("pause", "prod", "--for", "99d", "--reason", "sale"),
    ("resume", "staging"),
    ("resume", "prod", "--group", "web", "-o", "json"),
    ("resume", "edge"),
    ("retry", "prod", "group", "gpu"),
    ("retry", "prod", "group", "web"),
    ("retry", "prod", "node", "web-2", "-o", "json"),
    ("retry", "prod", "operation", "grow-5be1f0a2"),
    ("retry", "prod", "operation", "nothing"),
    ("release", "prod", "--for", "20m"),
    ("release", "filled", "--for", "20m", "-o", "json"),
    ("release", "prod", "--for", "20m", "--yes"),
    ("release", "prod", "--claim", "web"),
    ("release", "prod", "--claim", "nothing"),
    ("config",),
    ("config", "-o", "json"),
)
"""Commands that change what is stored, one after the other."""


# -- explain


def _explained(items: Mapping[str, Any]) -> Answers:
    with place(items) as here:
        for name in ("web", "batch", "gpu", "arm"):
            here.forms("explain", "group", name, "--cluster", "prod", path="{.kind} {.name}")
        for name in ("web-0", "batch-0", "batch-4", "arm-0", "arm-1"):
            here.forms("explain", "node", name, "--cluster", "prod", path="{.verdict}")
        for name in ("ml/train-huge-0", "shop/cart-0", "jobs/report-0", "jobs/report-1"):
            here.forms("explain", "pod", name, "--cluster", "prod", path="{.verdict}")
        for code in _CODES:
            here.command("explain", "node", f"n-{code}", "--cluster", "reasons")
            here.command("explain", "node", f"bare-{code}", "--cluster", "reasons", columns=NARROW)
            here.command("explain", "pod", f"fit/{code}", "--cluster", "reasons")
            here.command("explain", "pod", f"ignored/{code}", "--cluster", "reasons", "-o", "json")
            here.command("explain", "group", f"g-{code}", "--cluster", "reasons")
        for name in ("workers", "sick"):
            here.forms("explain", "group", name, "--cluster", "reasons")
        for words in (
            ("group", "wbe", "--cluster", "prod"),
            ("node", "web-99", "--cluster", "prod"),
            ("pod", "cart", "--cluster", "prod"),
            ("pod/train-huge-1", "--cluster", "prod"),
            ("node", "web-0", "--cluster", "lab"),
            ("node", "web-0", "--cluster", "prdo"),
            ("node", "web-0"),
            ("node", "--cluster", "prod"),
            ("group", "group-0", "--cluster", "shop"),
        ):
            here.command("explain", *words)
        return here.answers


_CODES = ("Insufficient", "BlockedByPod", "MaintenanceWindow", "RecentlyUnremovable", "NotWorthDisruption")


# -- plans of files


def _planned(_: Mapping[str, Any]) -> Answers:
    with place() as here:
        (here.folder / "more.yaml").write_text(_DEPLOYMENT)
        (here.folder / "moves.yaml").write_text(_MOVES)
        for case in _chosen_cases():
            name, words = case.name, _filled(here, case)
            moving = (name, "--policy", "moves.yaml", "--now", case.times[0])
            here.forms("plan", *words, path="{.id}")
            here.forms("plan", *moving)
            for kind, thing in _things(here.folder / name):
                here.command("explain", kind, thing, *words)
                here.command("explain", kind, thing, *words, "-o", "yaml")
                if kind != "pod":
                    here.command("explain", kind, thing, *moving)
            here.forms("cost", name, "--policy", f"{name}/policy.yaml", forms=(*TEXTS, "json"))
            here.command("groups", name)
        for more in _ASSUMED:
            here.forms("plan", *words, *more)
        here.command("explain", "node", _things(here.folder / name)[1][1], *words, columns=BROAD)
        here.command("explain", "pod", _things(here.folder / name)[-1][1], *words, columns=NARROW)
        for refused in (
            ("plan",),
            ("plan", name, "--now", "soon"),
            ("plan", "nowhere"),
            ("plan", name, "--option", "a=b"),
        ):
            here.command(*refused)
        return here.answers


_ASSUMED = (
    ("--group", "g0:max=20,min=1", "--assume-unneeded-for", "25m"),
    ("--compare-option", "expander=most-pods", "--compare-option", "balanceSimilarNodeGroups=true"),
    ("--strict", "--seed", "7"),
    ("--add-pods", "more.yaml", "--option", "maxNodesTotal=9"),
)
"""Further words of `plan`."""
_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: more, namespace: shop}
spec:
  replicas: 9
  selector: {matchLabels: {app: more}}
  template:
    metadata: {labels: {app: more}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 700m, memory: 1Gi}}}]}
"""
_MOVES = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: generated}
spec:
  mode: active
  kubernetes: {kubeconfigFile: kubeconfig}
  providers: {clusterapi: {}}
  prices: {cpu: 0.03, memory: 0.004, gpu: 0.9, node: 0.01, currency: EUR}
  consolidation: {mode: shadow, minNodeAge: 0s, quietTime: 0s}
  nodeLifecycle: {maxNodeAge: 24h}
"""
_CASES = ("random-0", "random-9", "random-12", "random-33", "random-60", "random-15")


def _chosen_cases() -> list[Case]:
    named = (case._replace(name=case.name.replace("/", "-")) for case in cases() if not case.shared)
    by_name = {case.name: case for case in named}
    return [by_name[name] for name in _CASES]


def _filled(here: Place, case: Case) -> list[str]:
    """Write the case's files into a folder of its name; the words that plan for it, without paths of this machine."""
    folder = here.folder / case.name
    folder.mkdir()
    words = [word.replace(f"{here.folder}/", "") for word in case.fill(folder)]
    return [case.name, *words, "--now", case.times[0]]


def _things(folder: Path) -> list[tuple[str, str]]:
    """A group, nodes and pods to explain."""
    nodes = [each["metadata"]["name"] for each in json.loads((folder / "nodes.json").read_text())["items"]]
    pods = json.loads((folder / "pods.json").read_text())["items"]
    names = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in (*pods[:2], *[pod for pod in pods if "nodeName" not in pod["spec"]][:2])
    ]
    return [("group", "g0"), *(("node", name) for name in nodes[:3]), *(("pod", name) for name in dict.fromkeys(names))]


# -- policy documents


def _validated(_: Mapping[str, Any]) -> Answers:
    with place() as here:
        for name, text in _DOCUMENTS.items():
            (here.folder / name).write_text(text)
        for name in _DOCUMENTS:
            here.forms("validate", name)
        here.forms("validate", *_DOCUMENTS, "missing.yaml", path="{[*].valid}")
        here.command("validate", "--strict", "warned.yaml")
        here.command("validate", "good.yaml", "good.yaml")
        here.command("schema")
        here.command("manifests", "rbac")
        for words in ((), ("validate",), ("explian",), ("get", "groups", "shop")):
            here.command(*words)
        return here.answers


_GOOD = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {clusterName: shop}}
"""
_DOCUMENTS = {
    "good.yaml": _GOOD,
    "warned.yaml": _GOOD.replace("shop", "other")
    + "  options: {scaleDownUtilizationThreshold: 1.5, expander: [price], scanInterval: 10s}\n"
    "  nodeGroups: [{provider: clusterapi, id: a, min: 3, max: 3}]\n",
    "wrong.yaml": _GOOD.replace("mode: active", "mode: aktive").replace("clusterName", "clustername")
    + "  options: {expander: [cheapest], scaleDownUnneededTime: soon, maxNodesTotal: -1, unknownOption: true}\n"
    "  nodeGroups: [{provider: nobody, id: a, min: 5, max: 2}]\n"
    "  rules: [{name: r, groups: [a], cron: '61 * * * *', add: 0}, {name: r, groups: [a], metric: disk, above: 200}]\n"
    "  headroom: [{name: h}]\n  maintenanceWindows: [{cron: '* * *', duration: 1h}]\n  prices: {cpu: -1}\n",
    "broken.yaml": "apiVersion: outscaler.dev/v1\nkind: [Cluster\n",
    "other-kind.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    "empty.yaml": "",
    "vendors.yaml": _GOOD.replace("shop", "third").replace("clusterapi: {clusterName: third}", "exoscale: {zone: x}"),
}
"""Policy documents by the name of their file."""


# -- routes and pages


def _routes(items: Mapping[str, Any]) -> Answers:
    with place(items) as here, _client(here) as client:
        for path in _PATHS:
            _asked(here, client, "GET", path)
        for path, headers, body in _POSTS:
            _asked(here, client, "POST", path, headers, body)
        return here.answers


def _pages(items: Mapping[str, Any]) -> Answers:
    with place(items) as here, _client(here) as client:
        of_all, of_one = (_session(client, path) for path in ("/ui/session", "/clusters/shop/session"))
        for path in _PAGES:
            _asked(here, client, "GET", path, {"Cookie": of_all})
        for path in ("/ui", "/ui/clusters/shop", "/ui/clusters/prod"):
            _asked(here, client, "GET", path, {"Cookie": of_one}, title=f"GET {path}, with a session of shop")
            _asked(here, client, "GET", path, title=f"GET {path}, without a session")
        return here.answers


@contextlib.contextmanager
def _client(here: Place) -> Iterator[Client]:
    """A client of the routes."""
    queue = boto3.client("sqs").create_queue(QueueName="reconcile")["QueueUrl"]
    environment = {**os.environ, "OUTSCALER_QUEUE_RECONCILE": queue}
    install(from_environment(environment, clock=lambda: here.now))
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "IAMAuthorizer is not a supported in local mode")
            yield Client(app)
    finally:
        logging.disable(logging.NOTSET)
        install(None)


def _session(client: Client, path: str) -> str:
    link = client.http.post(path, headers={"Content-Type": "application/json"}, body=b"{}").json_body["link"]
    return str(client.http.get(link).headers["Set-Cookie"]).partition(";")[0]


def _asked(
    here: Place,
    client: Client,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    title: str = "",
) -> None:
    """Record status, headers and body of a response, without what is drawn by lot."""
    answer = client.http.request(method, path, headers=dict(headers or {}), body=body)
    text = answer.body.decode()
    if answer.headers.get("Content-Type") == "application/json":
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    text = _ASSET.sub(r"\1-HASH", _LINK.sub("/ui/open/CODE", text))
    lines = [f"{name}: {value}" for name, value in sorted(answer.headers.items())]
    here.answers[title or f"{method} {path}"] = [f"status {answer.status_code}", *lines, *text.splitlines()]


_CLUSTERS = ("prod", "shop", "staging", "edge", "lab", "reasons", "filled")
_PATHS = (
    "/healthz",
    "/metrics",
    "/clusters",
    *(f"/clusters/{name}" for name in (*_CLUSTERS, "prdo", "A%20b")),
    *(f"/clusters/{name}/decisions" for name in (*_CLUSTERS, "prdo")),
    "/clusters/prod/decisions?limit=100",
    "/clusters/prod/decisions?limit=2&before=2026-11-18T09:00:00Z",
    "/clusters/prod/decisions?full=true&limit=2",
    "/clusters/filled/decisions?full=true&limit=1",
    "/clusters/prod/decisions?limit=101",
    "/clusters/prod/decisions?limit=x",
    "/clusters/prod/decisions?before=now",
    "/clusters/prod/decisions?full=yes",
    "/clusters/prod/decisions?page=2",
)
"""Routes that are read."""
_EVENTS = Path(__file__).parents[1] / "events"
_SIGNED = {"Authorization": f"Bearer {BEARER}", "Content-Type": "application/json"}
_POSTS = (
    ("/ui/session", {"Content-Type": "application/json"}, b"{}"),
    ("/clusters/prod/session", {"Content-Type": "application/json"}, b"{}"),
    ("/clusters/A%20b/session", {"Content-Type": "application/json"}, b"{}"),
    ("/clusters/filled/events", _SIGNED, (_EVENTS / "core-v1-failed-scheduling.json").read_bytes()),
    ("/clusters/filled/events?again", _SIGNED, (_EVENTS / "core-v1-event-list.json").read_bytes()),
    ("/clusters/filled/events?broken", _SIGNED, b"[{]"),
    ("/clusters/filled/events?unsigned", {"Content-Type": "application/json"}, b"{}"),
    ("/clusters/prdo/events", _SIGNED, b"{}"),
)
"""Path, headers and body of what is posted."""
_PAGES = (
    "/ui",
    "/ui?q=SH",
    "/ui?q=nothing",
    *(f"/ui/clusters/{name}" for name in (*_CLUSTERS, "prdo")),
    *(f"/ui/clusters/prod/{page}" for page in ("nodes", "pods", "history", "policy", "decision", "nothing")),
    *(f"/ui/clusters/reasons/{page}" for page in ("nodes", "pods", "history", "policy")),
    *(f"/ui/clusters/filled/{page}" for page in ("nodes", "pods", "history")),
    *(f"/ui/clusters/prod?range={span}" for span in ("6h", "24h", "14d")),
    "/ui/clusters/prod?range=14d&show=problems&kind=growth",
    "/ui/clusters/prod?show=empty",
    *(f"/ui/clusters/prod/groups?group={name}" for name in ("web", "batch", "gpu", "arm", "nothing")),
    "/ui/clusters/shop/groups?group=alias-1",
    "/ui/clusters/reasons/groups?group=workers",
    "/ui/clusters/reasons/groups?group=sick",
    "/ui/clusters/prod/nodes?reason=BlockedByPod",
    "/ui/clusters/prod/nodes?group=web&q=1",
    "/ui/clusters/prod/pods?q=huge",
    *(f"/ui/clusters/prod/history?kind={kind}" for kind in ("growth", "removal", "failed", "people", "all")),
    "/ui/clusters/prod/history?group=web&all=yes",
    "/ui/clusters/prod/history?before=2026-11-16T11:00:00Z",
    "/ui/clusters/prod/history?before=never",
    "/ui/clusters/prod/decision?plan=plan-a5&at=2026-11-18T10:00:00Z",
    "/ui/clusters/reasons/decision?plan=plan-reasons",
    "/ui/clusters/prod/policy?version=1",
    "/ui/clusters/prod/policy?version=2&against=1",
    "/ui/clusters/prod/policy?version=x",
    "/ui/clusters/prod/policy?version=9",
    "/ui/static/nothing.js",
)
"""Paths of pages."""


# -- the recorded table


def _of_the_recorded_table(_: Mapping[str, Any]) -> Answers:
    cluster = state.CLUSTER
    with place(state.recorded()["items"], state.TABLE, RECORDED_NOW) as here:
        every = (*TEXTS, "name", *DATA)
        for kind in ("clusters", "claims"):
            here.forms("get", kind, forms=every)
        for kind in ("groups", "nodes", "pods", "operations", "policy", "breaker"):
            here.forms("get", kind, cluster, forms=every)
        here.forms("history", cluster)
        here.command("history", cluster, "--all")
        for words in (
            ("cost", cluster),
            ("shadow", cluster),
            ("explain", "group", "group-2", "--cluster", cluster),
            ("notify", "open", cluster),
            ("notify", "dead", cluster),
        ):
            here.command(*words)
        with _client(here) as client:
            for path in ("/metrics", "/clusters", f"/clusters/{cluster}", f"/clusters/{cluster}/decisions?limit=5"):
                _asked(here, client, "GET", path)
            cookie = _session(client, "/ui/session")
            for page in ("", "/nodes", "/pods", "/history", "/policy", "/groups?group=group-2"):
                _asked(here, client, "GET", f"/ui/clusters/{cluster}{page}", {"Cookie": cookie})
        return here.answers


SURFACES: dict[str, Callable[[Mapping[str, Any]], Answers]] = {
    "get": _get,
    "history": _history,
    "cost and shadow": _money,
    "changes": _changed,
    "explain": _explained,
    "plan": _planned,
    "validate": _validated,
    "routes": _routes,
    "pages": _pages,
    "the recorded table": _of_the_recorded_table,
}
"""What is asked about the tables' items."""


def recorded() -> dict[str, Any]:
    """The recording: the `deployment`, and `answers` by surface and question."""
    made: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the recording."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.recorded.surfaces",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deployment", action="store_true")
    parser.add_argument("--to", type=Path)
    given = parser.parse_args(arguments)
    if given.deployment:
        from tests.recorded import deployment

        items = deployment.rows()
    else:
        items = recorded()["deployment"]
    answers = {name: ask(items) for name, ask in SURFACES.items()}
    if given.to is None:
        text = json.dumps({"deployment": items, "answers": answers}, sort_keys=True, indent=1)
        FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        return
    for surface, asked in answers.items():
        for at, (question, lines) in enumerate(asked.items()):
            file = given.to / surface / f"{at:03} {question.replace('/', '_')[:120]}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{line}\n" for line in (question, *lines)))


if __name__ == "__main__":
    main()
