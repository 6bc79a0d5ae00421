"""Five vendors behind one protocol (kit/base.py).

Here: kit/, which the vendors share, and the registry; a package per vendor with the same modules in
each. Not here: decisions about sizes and nodes (plan), and the order of steps (operations).
"""
