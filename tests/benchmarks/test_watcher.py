"""The watcher of a cluster, in a process of its own beside an emulated API server: memory, bytes
and CPU of its turns, and what a pass needs to use what it posted."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.test_pass import ChildProcess

ROUNDS = 3
MOST_MEMORY = 256.0  # MB that the manifest allows, for 1,000 nodes


@pytest.mark.parametrize(("nodes", "pods"), [(100, 1_500), (1_000, 30_000), (5_000, 170_000)])
def test_watcher_needs_little_memory_and_posts_what_has_changed(nodes: int, pods: int) -> None:
    near = (
        "--nodes",
        str(nodes),
        "--pods",
        str(pods),
        "--round-trip",
        "0.001",
        "--bandwidth",
        "1e9",
    )
    with ChildProcess("served_cluster", *near) as served, ChildProcess("measured_watcher") as child:
        child.say(json.dumps({"kubeconfig": served.answer()["kubeconfig"]}))
        full = child.ask("turn")
        turns = []
        for _ in range(ROUNDS):
            served.ask(f"pend {pods // 1000}")
            turns.append(child.ask("turn"))
        peak = turns[-1]["peak"]
        joined = min((child.ask("join") for _ in range(ROUNDS)), key=lambda each: each["cpu"])
    best = min(turns, key=lambda each: each["cpu"])
    print(
        f"\n{nodes} nodes, {pods} pods: all {full['wall']:.1f} s, {full['bytes'] / 1e3:.0f} KB; "
        "then "
        f"{best['cpu'] * 1e3:.0f} ms CPU, {turns[0]['bytes'] / 1e3:.1f} KB, after three rounds "
        f"{turns[-1]['bytes'] / 1e3:.1f} KB; {peak:.0f} MB; a pass joins them in "
        f"{joined['cpu'] * 1e3:.0f} ms CPU"
    )
    assert turns[-1]["bytes"] < full["bytes"] / 5
    if nodes <= 1_000:
        assert peak < MOST_MEMORY
