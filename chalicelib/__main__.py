"""`python -m chalicelib` is `outscaler`."""

from __future__ import annotations

from chalicelib.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
