"""`python -m chalicelib` is `outscaler`."""

from __future__ import annotations

from chalicelib.command.main import main

if __name__ == "__main__":
    raise SystemExit(main())
