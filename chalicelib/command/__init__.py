"""The `outscaler` command, one module per sub-command.

Here: arguments, calls of the packages below, output. Not here: decisions (plan) and Lambda entry points (handlers).
numpy and boto3 are imported by the commands that need them only, because `outscaler validate` runs in pre-commit hooks.
"""
