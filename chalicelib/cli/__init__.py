"""The `outscaler` command line. Each command has one module; main.py selects it.

A command reads input, calls the other packages and prints; it makes no decisions. Heavy packages are imported only when
a command needs them: `outscaler validate` runs in a pre-commit hook and must not load numpy or boto3.
"""
