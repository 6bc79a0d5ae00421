"""The settings of each vendor, declared once: type, check, text of docs/policy.md and JSON schema."""
