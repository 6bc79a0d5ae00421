"""The table of nodes that stay names a cause that a user can act on, also where it
shows rules instead of nodes.
"""

from __future__ import annotations

import io

from chalicelib.cli.output import show
from chalicelib.cli.plan_output import as_blocks
from tests.builders import cluster, having


def test_cli_stay_table_names_each_budget_that_blocks_many_nodes() -> None:
    build = cluster()
    for number in range(60):
        app = "web" if number % 2 else "shop"
        build.node(f"n{number:02d}", "4", group="g").running(
            f"n{number:02d}", 1, "100m", name=app, owner=app
        )
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
