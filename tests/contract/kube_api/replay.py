"""Replays the recorded exchanges, in order, against the simulated API server over HTTP.

Changes that controllers, scheduler, kubelets and the recorder's set-up made during the recording
are applied between the requests, with data from the recording. Versions, uids and continue tokens
of the recording are translated into those that the simulation gave to the same objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
import yaml

from infra.emulators.kube.auth import MASTERS, User
from infra.emulators.kube.disruption import reconcile_budgets
from infra.emulators.kube.objects import clone
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

NOW = 1795246219.0  # 2026-11-21T07:30:19Z, the start of the recording
LIMITED = "system:serviceaccount:rec:limited"
Exchange = dict[str, Any]
_TRANSLATED = {"uid", "resourceVersion", "continue"}


def load(path: Path) -> list[Exchange]:
    exchanges: list[Exchange] = json.loads(path.read_text())["exchanges"]
    return exchanges


class Replay:
    """The server, its surrounding state, and the translation of recorded server-made
    values into simulated ones."""

    def __init__(self, exchanges: list[Exchange], crd_directory: Path) -> None:
        self.exchanges = {exchange["name"]: exchange for exchange in exchanges}
        self.crd_directory = crd_directory
        self.store = ObjectStore(lambda: NOW)
        self.tokens = {
            "admin": "replay-admin",
            "limited": "replay-limited",
            "wrong": "replay-unknown",
        }
        users = (
            User("admin", self.tokens["admin"], (MASTERS,)),
            User(LIMITED, self.tokens["limited"]),
        )
        self.server = ApiServer(self.store, users=users, crd_directory=None)
        self.values: dict[str, str] = {}
        self.before: dict[str, Callable[[], None]] = {
            "version": self._nodes_join,
            "node-after-cordon": self._node_is_tainted,
            "watch-nodes": self._nodes_change,
            "deployment-create": self._namespace_is_made,
            "pdb-create": self._deployments_roll_out,
            "pdb-get": self._budgets_are_counted,
            "list-pods-active": self._budgets_are_counted,
            "evict-two-budgets-500": self._second_budget,
            "pod-delete": self._second_budget_goes,
            "pod-unschedulable": self._big_pod_waits,
            "capi-group": self._cluster_api_arrives,
        }

    def run(self) -> dict[str, Exchange]:
        """Returns every exchange's answer by name: {"status": …, "headers":
        …, "body" or "stream": …}."""
        with self.server, requests.Session() as session:
            answers = {}
            for name, exchange in self.exchanges.items():
                self.before.get(name, lambda: None)()
                answers[name] = self._exchange(session, exchange)
                self._learn(exchange["response"], answers[name])
            return answers

    # -- one exchange

    def _exchange(self, session: requests.Session, exchange: Exchange) -> Exchange:
        asked = exchange["request"]
        query = {key: self._translated(key, value) for key, value in asked["query"].items()}
        if "timeoutSeconds" in query:
            # the recorder waited for events; here they exist already
            query["timeoutSeconds"] = "0.2"
        who = "wrong" if exchange["name"] == "no-token-401" else asked["as"]
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        body = asked.get("body")
        if asked.get("contentType"):
            headers["Content-Type"] = asked["contentType"]
        sent = (
            body
            if isinstance(body, str)
            else None
            if body is None
            else json.dumps(self._rewritten(body))
        )
        answer = session.request(
            asked["method"],
            self.server.url + asked["path"],
            params=query,
            headers=headers,
            data=sent,
            timeout=600,
        )
        found: Exchange = {"status": answer.status_code, "headers": dict(answer.headers)}
        if "stream" in exchange["response"]:
            return {**found, "stream": [json.loads(line) for line in answer.text.splitlines()]}
        is_json = answer.headers["Content-Type"] == "application/json"
        return {**found, "body": answer.json() if is_json else answer.text}

    def _translated(self, key: str, value: Any) -> Any:
        return self.values.get(f"{key} {value}", value)

    def _rewritten(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._rewritten(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self._rewritten(each) for each in value]
        return self._translated(key, value) if key in _TRANSLATED else value

    def _learn(self, recorded: Any, simulated: Any) -> None:
        """Pairs the server-made values of a recorded answer with those of the simulated one."""
        if isinstance(recorded, dict) and isinstance(simulated, dict):
            for key in recorded.keys() & simulated.keys():
                if key in _TRANSLATED and isinstance(simulated[key], str):
                    self.values.setdefault(f"{key} {recorded[key]}", simulated[key])
                self._learn(recorded[key], simulated[key])
        if isinstance(recorded, list) and isinstance(simulated, list):
            for one, other in zip(recorded, simulated, strict=False):
                self._learn(one, other)

    # -- changes between the requests

    def _recorded_events(self) -> list[Exchange]:
        events: list[Exchange] = self.exchanges["watch-too-old"]["response"]["stream"]
        return events

    def _nodes_join(self) -> None:
        """Creates rec-1 to rec-6; the node controller annotates them and
        removes the not-ready taint."""
        until = int(
            self.exchanges["list-nodes-page-1"]["response"]["body"]["metadata"]["resourceVersion"]
        )
        for event in self._recorded_events()[1:]:
            if int(event["object"]["metadata"]["resourceVersion"]) > until:
                break
            self._write_node(event["object"], create=event["type"] == "ADDED")

    def _write_node(self, recorded: Exchange, *, create: bool) -> None:
        node = clone(recorded)
        version = node["metadata"].pop("resourceVersion")
        node["metadata"].pop("uid")
        made = self.store.create("nodes", node) if create else self.store.update("nodes", node)
        self.values[f"resourceVersion {version}"] = made["metadata"]["resourceVersion"]

    def _node_is_tainted(self) -> None:
        self._write_node(self.exchanges["node-after-cordon"]["response"]["body"], create=False)

    def _nodes_change(self) -> None:
        changed = self.exchanges["watch-nodes"]["response"]["stream"][0]["object"]
        self._write_node(changed, create=False)
        self.store.delete("nodes", "rec-6")

    def _namespace_is_made(self) -> None:
        self.store.create("namespaces", {"metadata": {"name": "rec"}})

    def _deployments_roll_out(self) -> None:
        """Creates the ReplicaSets' pods, bound and running, as the recording shows them."""
        for name in ("list-pods-active", "list-pods-label", "list-pods-on-node"):
            for pod in self.exchanges[name]["response"]["body"]["items"]:
                if self.store.peek("pods", pod["metadata"]["name"], "rec") is None:
                    self._learn(
                        pod,
                        self.store.create(
                            "pods", {**clone(pod), "apiVersion": "v1", "kind": "Pod"}
                        ),
                    )

    def _budgets_are_counted(self) -> None:
        reconcile_budgets(self.store)

    def _second_budget(self) -> None:
        budget = clone(self.exchanges["pdb-create"]["request"]["body"])
        budget["metadata"] = {"name": "web-too", "namespace": "rec"}
        self.store.create("poddisruptionbudgets", budget, "policy")

    def _second_budget_goes(self) -> None:
        self.store.remove("poddisruptionbudgets", "web-too", "rec", "policy")

    def _big_pod_waits(self) -> None:
        for plural, name in (("pods", "pod-unschedulable"), ("events", "events-failed-scheduling")):
            for obj in self.exchanges[name]["response"]["body"]["items"]:
                self._learn(obj, self.store.create(plural, clone(obj)))

    def _cluster_api_arrives(self) -> None:
        admin = {"Authorization": f"Bearer {self.tokens['admin']}"}
        for path in sorted(self.crd_directory.glob("*.yaml")):
            crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
            made = requests.post(
                f"{self.server.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                headers=admin,
                json=crd,
                timeout=600,
            )
            assert made.status_code == 201, made.text


_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_GENERATED = re.compile(r"\brec\.[a-z0-9]{5}\b")
_SERVER_MADE = {"resourceVersion", "continue", "storageVersionHash", "gitCommit"}


def comparable(value: Any, key: str = "") -> Any:
    """Returns a body with the server's own values blanked: uids, times, versions,
    tokens, generated names."""
    if isinstance(value, dict):
        return {
            name: comparable(each, name)
            for name, each in value.items()
            if name != "storageVersionHash"
        }
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, str):
        return value
    if key in _SERVER_MADE:
        return f"<{key}>" if value else ""
    if key != "providerID":
        value = _GENERATED.sub("<name>", _TIME.sub("<time>", _UID.sub("<uid>", value)))
    return value
