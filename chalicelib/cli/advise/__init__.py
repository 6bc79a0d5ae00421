"""Schedules that follow from a cluster's own record, for `outscaler advise` (docs/advise.md).

Here: reading.py reads the tables, history.py makes purchases and sizes of groups from ended
operations, patterns.py fits patterns and makes schedules of them, backtest.py tests these on days
that they have not seen, output.py prints. All but reading.py is pure. Not here: the command
(cli/commands/advise.py), what an open schedule does (schedules).
"""
