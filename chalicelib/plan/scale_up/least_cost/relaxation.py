"""The linear relaxation, in which nodes and pods may be split. It is fast, and the search starts
from it.

Its price is a lower bound. Its dual values give the value of a pod and of a resource. Its shares
assign pods to offers, which is a far better first guess than any single group for all pods.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_programme import NOWHERE, Model, Place
from chalicelib.plan.packing.linear_solver import Trouble
from chalicelib.plan.packing.problem import Numbers
from chalicelib.plan.scale_up.least_cost.problem import Problem, dot
from chalicelib.plan.tables import Floats, Ints


class Relaxed(msgspec.Struct, frozen=True):
    """bound: no mix costs less. value [A]: of a pod. scarce [G,R]: value of a node's whole amount
    of a resource. shares [G,A]: whole pods, as many as can be placed at all. surcharge [G]: value
    of what a node takes of the limits."""

    bound: float
    value: Floats
    scarce: Floats
    shares: Ints
    surcharge: Floats


def relax(problem: Problem) -> Relaxed:
    """Solve the relaxation. Raises Trouble."""
    offers = [Place(NOWHERE, offer, most) for offer, most in enumerate(problem.most.tolist())]
    solution = Model(Numbers(problem), offers, may_wait=True).solve()
    if solution is None:
        raise Trouble("no relaxation obeys the limits")
    return Relaxed(
        bound=solution.objective,
        value=solution.pod,
        scarce=solution.scarce * problem.room,
        shares=_whole_shares(problem, np.maximum(solution.put, 0.0)),
        surcharge=dot(problem.buying.T, solution.limit),
    )


def _whole_shares(problem: Problem, shares: Floats) -> Ints:
    """Return the shares as whole numbers: rounded down, with the remainder added
    where rounding cut off most."""
    whole: Ints = np.floor(shares + 1e-6).astype(np.int64)
    for ask in range(len(problem.pending)):
        pods = min(int(problem.pending[ask]), round(float(shares[:, ask].sum())))
        missing = max(0, pods - int(whole[:, ask].sum()))
        most_cut_off = np.argsort(whole[:, ask] - shares[:, ask], kind="stable")
        for offer in most_cut_off[:missing]:
            whole[offer, ask] += 1
    return whole
