"""Checks of a cluster, its vendors and its deployment before anything acts, for
`outscaler doctor` and `apply`.

Here: finding.py has the result of a check and what checks may use; one module per subject has its
checks, and registry.py runs them in order. Not here: the command and its table
(cli/commands/doctor.py).
"""
