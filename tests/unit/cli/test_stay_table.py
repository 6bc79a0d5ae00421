"""The table of nodes that stay names a cause that a person can act on, also where it has rules in place of nodes."""

from __future__ import annotations

import io

from chalicelib.cli.plan_output import as_blocks
from chalicelib.cli.tables import show
from tests.builders import cluster, having


def test_many_nodes_held_by_budgets_show_each_budget() -> None:
    build = cluster()
    for number in range(60):
        app = "web" if number % 2 else "shop"
        build.node(f"n{number:02d}", "4", group="g").running(f"n{number:02d}", 1, "100m", name=app, owner=app)
    build.group("g")
    for app in ("web", "shop"):
        build.budget(f"keep-{app}", 0, having(app=app))
    plan = build.plan(unneeded=3600.0)
    out = io.StringIO()
    show(as_blocks(plan, {"decode": 0.0, "plan": 0.0}), out)
    rows = [line for line in out.getvalue().splitlines() if "BlockedByPod" in line]
    assert len(rows) == 2
    assert "(default/keep-shop)" in rows[0]
    assert "(default/keep-web)" in rows[1]
