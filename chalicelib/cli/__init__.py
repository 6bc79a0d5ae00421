"""The `outscaler` command: what people type (architecture §8). One module per command; main.py finds it.

A command reads, asks the rooms below, and prints; it decides nothing. Nothing heavy is imported before a command needs
it: `outscaler validate` runs in a pre-commit hook and must not load numpy or boto3.
"""
