"""Five clouds behind one protocol (base.py). Each package speaks its vendor's words; none of them leaves it."""
