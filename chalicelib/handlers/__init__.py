"""The only place where the five steps meet: one blueprint per trigger, entered by Lambda directly (architecture §2).

Lambda calls `chalicelib.handlers.tick.tick` and its like without ever importing app.py, so nothing that app.py would
set up (middlewares, its logger) exists here: what a function needs it does inside. Each module imports only what its
own function needs; the heavy rooms are imported by entry.preload, and only in the function that uses them.
"""

import gc
import os

# What a start makes lives as long as the process, so garbage is not sought meanwhile; entry.preload ends this.
if os.environ.get("_HANDLER", "").startswith(("app.", f"{__name__}.")):
    gc.disable()
