"""Nodes and pods as numpy arrays.

Here: columns and their types. Not here: rules about them (predicates) and changes to them while planning (simulation).
"""
