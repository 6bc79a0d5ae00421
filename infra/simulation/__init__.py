"""Simulations of a deployment on virtual time, for questions that no single cluster answers."""
