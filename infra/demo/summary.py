"""The summary of the demonstration: expectations, observations and figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from infra.demo.console import span
from infra.demo.counters import Ledger
from infra.demo.expectations import Expectation


def verdicts(found: Sequence[Expectation]) -> Table:
    """Return one row per expectation."""
    table = Table(title="Expected", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for each in found:
        table.add_row("[green]yes[/]" if each.met else "[bold red]NO[/]", each.words, f"[dim]{each.seen}[/]")
    return table


def figures(ledger: Ledger, virtual: float, wall: float) -> Table:
    """Return the measured figures."""
    table = Table(title="Figures", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for what, how in _figures(ledger, virtual, wall):
        table.add_row(what, how)
    return table


def _figures(ledger: Ledger, virtual: float, wall: float) -> list[tuple[str, str]]:
    reaction = ledger.reaction
    reacted = f"{reaction[0]:.0f} s, {reaction[1]:.2f} s on the wall" if reaction else "never"
    calls = ", ".join(f"{name} {number}" for name, number in sorted(ledger.invocations.items()))
    requests = ledger.kube_requests
    return [
        ("time", f"{span(virtual)} virtual, {wall:.1f} s on the wall"),
        ("first pod refused ► call at the provider", reacted),
        ("nodes bought / removed", f"{sum(ledger.bought.values())} / {sum(ledger.gone.values())}"),
        ("operations", ", ".join(f"{number} {state}" for state, number in ledger.ended.items()) or "none"),
        ("functions killed / messages sent again", f"{len(ledger.killed)} / {ledger.swept}"),
        ("invocations", f"{calls}; {ledger.cold_starts} cold starts"),
        ("requests to the cluster's API", f"{requests['reads']} reads, {requests['writes']} writes"),
        ("requests to AWS", str(ledger.aws_requests)),
        ("items written by a quiet pass", f"{ledger.writes_per_quiet_pass:g} (median of {len(ledger.quiet_writes)})"),
    ]
