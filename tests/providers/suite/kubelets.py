"""Kubelets that misreport their Nodes: with another machine's id, a new object, or nothing at all.

They do only what a kubelet can do: register the Node again with another providerID. Another name
than its own takes a bootstrap token, and is tested as well.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.timestamps import format_time
from infra.emulators.kube.objects import KubeObject


@dataclass
class Word:
    """What one kubelet reports from `at` (epoch seconds) on: its Node's providerID
    and name; None: the truth."""

    at: float
    provider_id: str | None = None
    name: str | None = None


@dataclass
class Kubelets:
    """words: by the Node's true name. silent: Nodes that were deleted and do not register again."""

    words: dict[str, Word] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    def say(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Returns the Nodes as the API lists them, by name."""
        said = [self._said(node) for node in nodes if node.name not in self.silent]
        return tuple(sorted(said, key=lambda node: node.name)) if self.words else tuple(said)

    def say_raw(self, nodes: Sequence[KubeObject]) -> list[KubeObject]:
        """Returns the same as raw objects."""
        said = [
            self._said_raw(node) for node in nodes if node["metadata"]["name"] not in self.silent
        ]
        return sorted(said, key=lambda node: str(node["metadata"]["name"])) if self.words else said

    def _said(self, node: Node) -> Node:
        word = self.words.get(node.name)
        if word is None:
            return node
        return msgspec.structs.replace(
            node,
            name=word.name or node.name,
            uid=f"{node.uid}-again",
            created=word.at,
            provider_id=node.provider_id if word.provider_id is None else word.provider_id,
        )

    def _said_raw(self, node: KubeObject) -> KubeObject:
        word = self.words.get(node["metadata"]["name"])
        if word is None:
            return node
        made = copy.deepcopy(node)
        made["metadata"] |= {
            "name": word.name or node["metadata"]["name"],
            "creationTimestamp": format_time(word.at),
            "uid": f"{node['metadata'].get('uid', '')}-again",
        }
        if word.provider_id is not None:
            made["spec"]["providerID"] = word.provider_id
        return made
