"""The policy document: text in, one checked `model.Policy` out (architecture §7).

    text ──yaml_marks──► nodes with lines ──schema + options + parsers──► values ──check──► Policy

A document is refused whole, with every mistake at once, each with its line, its path and what would be right. What is
known but not in force yet is accepted with a warning that says so; nothing is silently something else. The tables
(schema.py, providers.py, options.py) are the documentation too: docs/policy.md is made from them by docs.py.
"""
