"""The Lambda entry points: one blueprint per trigger, each combining the layers below for its function.

Lambda enters `chalicelib.handlers.tick.tick` and the other functions without importing app.py, so nothing that app.py
would set up (middlewares, its logger) exists here; each function sets up what it needs. Each module imports only what
its own function needs; heavy packages are imported by lambda_entry.preload, and only in the function that uses them.
"""

import gc
import os

# Objects created during start live as long as the process, so garbage collection is off until lambda_entry.preload
# ends.
if os.environ.get("_HANDLER", "").startswith(("app.", f"{__name__}.")):
    gc.disable()
