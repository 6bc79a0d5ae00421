"""The settings of each vendor, declared once: type, check, text of docs/policy.md and JSON schema.

Here: the fields of spec.providers.<vendor>, rules about several of them, and what functions make
of a stored policy. Not here: documents and their lines (policy/providers.py), and what a setting
does (providers/<vendor>).
"""
