"""Managed pools: which machine types a declaration of the policy may use."""
