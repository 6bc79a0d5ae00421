"""The cheapest nodes for these pods: one statement of the problem, and its linear programme.

    problem ► which pods need a place, which nodes may go, what may be bought, all linear limits
    linear_programme ► the problem as rows and columns, in fractions or in whole numbers
    linear_solver ► the only caller of HiGHS

Three ask: the expander least-cost (scale_up/least_cost) for pending pods, consolidation
(removal/consolidation/programme) for the pods of nodes that go, and the report of costs
(cost_bound) for all pods. They differ in how they round, not in what they state.
"""
