"""Adapters of five clouds behind one protocol (base.py).

Each vendor's terms and types stay inside its own package."""
