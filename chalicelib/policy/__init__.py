"""The policy document: text in, one validated `model.Policy` out.

    text ──yaml_document──► nodes with lines ──schema + options + value_types──► values ──validation──► Policy

A document is refused as a whole, with every mistake at once, each with its line, its path and a correction. Settings
that are known but not in force yet are accepted with a warning that says so; no setting is silently interpreted in
another way. The tables (schema.py, providers.py, options.py) are also the documentation: docs.py generates
docs/policy.md from them.
"""
