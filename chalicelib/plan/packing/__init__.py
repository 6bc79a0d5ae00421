"""The cheapest nodes for these pods: one statement of the problem, and its linear programme.

Here: which pods need a place, which nodes may go, what may be bought, and all linear limits
(problem); the same as rows and columns, in fractions or in whole numbers (linear_programme); the
only caller of HiGHS (linear_solver); the scheduler's orders (scheduler_orders). Not here: how
fractions become whole nodes. That differs between the three that ask: the expander least-cost
(scale_up/least_cost) for pending pods, consolidation (removal/consolidation/programme) for the pods
of nodes that go, and the report of costs (cost_bound) for all pods.
"""
