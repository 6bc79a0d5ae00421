"""What of the packages that pip installs does not go into the zip.

Three kinds: what only a build or a test needs; parts of a library that no function imports; and a file that the wheel
holds twice. Names are written so that they match on every processor and for every version of Python: extension modules
and libraries have both in their names. tests/functional/test_package_size.py runs a pass from what is left.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Of a distribution's metadata the licences stay, and METADATA, from which scanners for known defects take the version.
_METADATA = r"\.dist-info/(?!(licenses/|LICEN[CS]E|NOTICE|COPYING|AUTHORS|METADATA$))"

#: Powertools is loaded for its logger, whose package also imports metrics and tracing.
_POWERTOOLS = (
    r"^aws_lambda_powertools/(event_handler|middleware_factory)/",
    r"^aws_lambda_powertools/metrics/provider/datadog/",
    r"^aws_lambda_powertools/utilities/(?!jmespath_utils/|__init__\.)",
)

#: numpy imports these when they are asked for, and neither the planner nor the solver asks. numpy.random stays: the
#: expander least-cost uses it. numpy.ma stays: from numpy 2.3 on `unique`, and what is built on it, import it.
_NUMPY = (
    r"^numpy/(f2py|distutils|_pyinstaller|doc|fft|polynomial|testing)/",
    r"^numpy/(ctypeslib|matlib|conftest|_configtool)\.py$",
    r"^numpy/_core/(_simd|_\w+_tests)\.[^/]*so$",
    r"^numpy/random/(_examples|lib)/",
)

LEFT_OUT = re.compile(
    "|".join(
        (
            r"(^|/)__pycache__/",
            r"(^|/)tests?/",
            r"_test\.py$",
            r"\.(pyi|pyc|pxd|pyx|h|c|a)$",
            r"^bin/",
            r"\.data/",  # scripts of a wheel
            _METADATA,
            *_POWERTOOLS,
            *_NUMPY,
            r"^charset_normalizer/",  # requests guesses encodings with it; only bytes are read here
            r"^botocore/cacert\.pem$",  # the authorities come from certifi
            r"^dateutil/zoneinfo/.*\.tar\.gz$",  # the time zones come from tzdata
            r"^urllib3/contrib/emscripten/",
        )
    )
)


def is_left_out(name: str) -> bool:
    """Whether a file of Chalice's zip stays out of ours. name: its path in the zip."""
    return name.endswith("/") or LEFT_OUT.search(name) is not None


def twins(tree: Path) -> list[Path]:
    """Shared libraries that lie in one folder twice under several names; only the name that programs link to is used.

    A wheel has no symbolic links, so `libx.so.1` and `libx.so.1.2.3` are two files. The dynamic linker looks for the
    library's own name (SONAME), which stands in the file itself.
    """
    groups: dict[tuple[Path, int, bytes], list[Path]] = {}
    for library in sorted(tree.rglob("*.so*")):
        if library.is_file():
            content = library.read_bytes()
            groups.setdefault((library.parent, len(content), content), []).append(library)
    unused = []
    for (_, _, content), names in groups.items():
        linked = [path for path in names if b"\0" + path.name.encode() + b"\0" in content]
        unused += [path for path in names if len(names) > 1 and linked and path not in linked]
    return unused
