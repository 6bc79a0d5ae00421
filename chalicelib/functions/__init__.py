"""Entry points of the Lambda functions, one module per function.

Here: parsing of an invocation, one call of the package that does the work, the acknowledgement.
Not here: the work itself (passes, operations). Lambda imports a handler without app.py, so each
module imports only what its function needs; lambda_entry.preload imports the large packages in the
functions that use them.
"""

import gc
import importlib
import os

# Objects created during start live as long as the process, so garbage collection is off until
# lambda_entry.preload ends.
if os.environ.get("_HANDLER", "").startswith(("app.", f"{__name__}.")):
    gc.disable()
    # Compiling this module's regular expressions takes and frees more memory than any other import.
    # On a small heap the memory is taken once; between other imports it is returned to the system
    # and taken again, 40 ms in all.
    importlib.import_module("urllib3.util.url")
