"""What every surface answers: commands in all forms, the read API, the pages and the metrics.

    python -m tests.recorded.surfaces                  write tests/recorded/surfaces.json.gz
                                                       with the code of this tree
    python -m tests.recorded.surfaces --deployment     make the deployment that
                                                       is asked about again, too
    python -m tests.recorded.surfaces --to DIR         write every answer into DIR, to
                                                       compare two trees with diff -r

Questions are about the tables of deployment.py and of state.py, generated
clusters, and policy documents.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3

from tests.recorded import state
from tests.recorded.answer_recorder import (
    BEARER,
    BROAD,
    DATA,
    NARROW,
    TEXTS,
    AnswerRecorder,
    Answers,
    recorder,
    session,
)
from tests.recorded.plans import Case, cases

FILE = Path(__file__).parent / "surfaces.json.gz"
RECORDED_NOW = state.NOW + 120.0


# -- get


def _get(items: Mapping[str, Any]) -> Answers:
    with recorder(items) as here:
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
    *(
        ("clusters", "-l", selector)
        for selector in ("mode=active", "health!=ok", "mode=shadow,health=ok", "color=red")
    ),
    *(
        ("groups", "prod", "-l", selector)
        for selector in ("machine=m5.large", "name=gpu", "provider!=clusterapi")
    ),
    *(
        ("groups", "prod", "-l", selector)
        for selector in ("spot=yes", "state=growing", "zone=ch-gva-2", "group=web", "x")
    ),
    *(
        ("nodes", "prod", "-l", selector)
        for selector in ("decision=stays", "due=drifted", "group=web", "machine!=m5.large")
    ),
    *(
        ("nodes", "prod", "-l", selector)
        for selector in ("spot=yes", "zone=cn-north-4a", "name=web-0")
    ),
    *(
        ("pods", "prod", "-l", selector)
        for selector in ("decision=no-place", "namespace=ml", "pod=a")
    ),
    *(
        ("operations", "prod", "-l", selector)
        for selector in ("group=web", "kind=grow", "state!=waiting", "step=poll")
    ),
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
    with recorder(items) as here:
        for cluster in ("prod", "filled"):
            here.forms("history", cluster, path="{.journal[*].kind}")
            here.forms("history", cluster, "--all", "--limit", "100", path="{.versions[*].digest}")
        for kind in (
            "plan",
            "operation",
            "pass",
            "policy",
            "pause",
            "resume",
            "retry",
            "release",
            "accept",
            "wake",
        ):
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
    with recorder(items) as here:
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
_ACCEPTED = (
    ("accept", "edge", "00000008"),
    ("accept", "edge/web-9"),
    ("accept", "edge", "nothing"),
    ("a", "b"),
)
"""Words of `shadow`."""


# -- changes


def _changed(items: Mapping[str, Any]) -> Answers:
    with recorder(items) as here:
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
    with recorder(items) as here:
        for name in ("web", "batch", "gpu", "arm"):
            here.forms("explain", "group", name, "--cluster", "prod", path="{.kind} {.name}")
        for name in ("web-0", "batch-0", "batch-4", "arm-0", "arm-1"):
            here.forms("explain", "node", name, "--cluster", "prod", path="{.verdict}")
        for name in ("ml/train-huge-0", "shop/cart-0", "jobs/report-0", "jobs/report-1"):
            here.forms("explain", "pod", name, "--cluster", "prod", path="{.verdict}")
        here.command("get", "nodes", "reasons", "-o", "name")
        for name in here.answers["outscaler get nodes reasons -o name"][1:]:
            if not name.startswith("node/bare-"):
                here.command("explain", name, "--cluster", "reasons")
        for code in _CODES:
            here.command("explain", "node", f"bare-{code}", "--cluster", "reasons", columns=NARROW)
            here.command("explain", "pod", f"fit/{code}", "--cluster", "reasons")
            here.command("explain", "pod", f"ignored/{code}", "--cluster", "reasons", "-o", "json")
            here.command("explain", "group", f"g-{code}", "--cluster", "reasons")
        for name in ("workers", "sick"):
            here.forms("explain", "group", name, "--cluster", "reasons", forms=DATA)
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


_CODES = (
    "Insufficient",
    "BlockedByPod",
    "MaintenanceWindow",
    "RecentlyUnremovable",
    "NotWorthDisruption",
)


# -- plans of files


def _planned(_: Mapping[str, Any]) -> Answers:
    with recorder() as here:
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
            for kind in ("node", "pod", "group"):
                here.command("explain", kind, "nothing", *words)
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


def _filled(here: AnswerRecorder, case: Case) -> list[str]:
    """Write the case's files into a folder of its name; the words that plan for it,
    without paths of this machine."""
    folder = here.folder / case.name
    folder.mkdir()
    words = [word.replace(f"{here.folder}/", "") for word in case.fill(folder)]
    return [case.name, *words, "--now", case.times[0]]


def _things(folder: Path) -> list[tuple[str, str]]:
    """A group, nodes and pods to explain."""
    nodes = [
        each["metadata"]["name"]
        for each in json.loads((folder / "nodes.json").read_text())["items"]
    ]
    pods = json.loads((folder / "pods.json").read_text())["items"]
    names = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in (*pods[:2], *[pod for pod in pods if "nodeName" not in pod["spec"]][:2])
    ]
    return [
        ("group", "g0"),
        *(("node", name) for name in nodes[:3]),
        *(("pod", name) for name in dict.fromkeys(names)),
    ]


# -- policy documents


def _validated(_: Mapping[str, Any]) -> Answers:
    with recorder() as here:
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
    "wrong.yaml": _GOOD.replace("mode: active", "mode: aktive").replace(
        "clusterName", "clustername"
    )
    + "  options: {expander: [cheapest], scaleDownUnneededTime: soon, maxNodesTotal: -1, "
    "unknownOption: true}\n"
    "  nodeGroups: [{provider: nobody, id: a, min: 5, max: 2}]\n"
    "  rules: [{name: r, groups: [a], cron: '61 * * * *', add: 0}, {name: r, groups: [a], metric: "
    "disk, above: 200}]\n"
    "  headroom: [{name: h}]\n  maintenanceWindows: [{cron: '* * *', duration: 1h}]\n  prices: "
    "{cpu: -1}\n",
    "broken.yaml": "apiVersion: outscaler.dev/v1\nkind: [Cluster\n",
    "other-kind.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    "empty.yaml": "",
    "vendors.yaml": _GOOD.replace("shop", "third").replace(
        "clusterapi: {clusterName: third}", "exoscale: {zone: x}"
    ),
}
"""Policy documents by the name of their file."""


# -- routes and pages


def _routes(items: Mapping[str, Any]) -> Answers:
    with recorder(items) as here, here.client() as client:
        for path in _PATHS:
            here.request(client, "GET", path)
        for path, headers, body in _POSTS:
            here.request(client, "POST", path, headers, body)
        return here.answers


def _pages(items: Mapping[str, Any]) -> Answers:
    with recorder(items) as here, here.client() as client:
        of_all, of_one = (
            session(client, path) for path in ("/ui/session", "/clusters/shop/session")
        )
        for path in _PAGES:
            here.request(client, "GET", path, {"Cookie": of_all})
        for path in ("/ui", "/ui/clusters/shop", "/ui/clusters/prod"):
            here.request(
                client, "GET", path, {"Cookie": of_one}, title=f"GET {path}, with a session of shop"
            )
            here.request(client, "GET", path, title=f"GET {path}, without a session")
        return here.answers


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
    *(
        f"/ui/clusters/prod/{page}"
        for page in ("nodes", "pods", "history", "policy", "decision", "nothing")
    ),
    *(f"/ui/clusters/reasons/{page}" for page in ("nodes", "pods", "history", "policy")),
    *(f"/ui/clusters/filled/{page}" for page in ("nodes", "pods", "history")),
    *(f"/ui/clusters/prod?range={span}" for span in ("6h", "24h", "14d")),
    "/ui/clusters/prod?range=14d&show=problems&kind=growth",
    "/ui/clusters/prod?show=empty",
    *(
        f"/ui/clusters/prod/groups?group={name}"
        for name in ("web", "batch", "gpu", "arm", "nothing")
    ),
    "/ui/clusters/shop/groups?group=alias-1",
    "/ui/clusters/reasons/groups?group=workers",
    "/ui/clusters/reasons/groups?group=sick",
    "/ui/clusters/prod/nodes?reason=BlockedByPod",
    "/ui/clusters/prod/nodes?group=web&q=1",
    "/ui/clusters/prod/pods?q=huge",
    *(
        f"/ui/clusters/prod/history?kind={kind}"
        for kind in ("growth", "removal", "failed", "people", "all")
    ),
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
    with recorder(state.recorded()["items"], state.TABLE, RECORDED_NOW) as here:
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
        with here.client() as client:
            for path in (
                "/metrics",
                "/clusters",
                f"/clusters/{cluster}",
                f"/clusters/{cluster}/decisions?limit=5",
            ):
                here.request(client, "GET", path)
            cookie = session(client, "/ui/session")
            for page in ("", "/nodes", "/pods", "/history", "/policy", "/groups?group=group-2"):
                here.request(client, "GET", f"/ui/clusters/{cluster}{page}", {"Cookie": cookie})
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
