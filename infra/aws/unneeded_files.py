"""Selects files of installed packages that are left out of the zip.

There are three kinds: files that only a build or a test needs, parts of a library that no function
imports, and files that a wheel contains twice. Patterns match on every processor and Python
version, which the names of extension modules and libraries contain.
tests/functional/test_package_size.py runs a pass with the remaining files.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Of a distribution's metadata, licences stay, and METADATA, from which vulnerability
#: scanners read the version.
_METADATA = r"\.dist-info/(?!(licenses/|LICEN[CS]E|NOTICE|COPYING|AUTHORS|METADATA$))"

#: Only Powertools' logger is used, but its package also imports metrics and tracing.
_POWERTOOLS = (
    r"^aws_lambda_powertools/(event_handler|middleware_factory)/",
    r"^aws_lambda_powertools/metrics/provider/datadog/",
    r"^aws_lambda_powertools/utilities/(?!jmespath_utils/|__init__\.)",
)

#: numpy imports these on demand, and neither the planner nor the solver uses them. numpy.ma stays
#: because `unique` and functions based on it import it from numpy 2.3 on.
_NUMPY = (
    r"^numpy/(f2py|distutils|_pyinstaller|doc|fft|polynomial|random|testing)/",
    r"^numpy/(ctypeslib|matlib|conftest|_configtool)\.py$",
    r"^numpy/_core/(_simd|_\w+_tests)\.[^/]*so$",
    r"^numpy/lib/recfunctions\.py$",
    r"^numpy/ma/(mrecords|testutils|timer_comparison)\.py$",
)

#: Extensions of Jinja2 and ways to use it that the templates do not.
_JINJA = (r"^jinja2/(ext|sandbox|nativetypes|meta|constants)\.py$",)

LEFT_OUT = re.compile(
    "|".join(
        (
            r"(^|/)__pycache__/",
            r"(^|/)tests?/",
            r"_test\.py$",
            r"\.(pyi|pyc|pxd|pyx|h|c|a)$",
            r"^bin/",
            r"\.data/",  # scripts of wheels
            _METADATA,
            *_POWERTOOLS,
            *_NUMPY,
            *_JINJA,
            # requests uses it to guess encodings; here only bytes are read
            r"^charset_normalizer/",
            r"^botocore/cacert\.pem$",  # certifi provides the certificate authorities
            r"^dateutil/zoneinfo/.*\.tar\.gz$",  # tzdata provides the time zones
            r"^urllib3/contrib/emscripten/",
        )
    )
)


def is_left_out(name: str) -> bool:
    """Return whether a file of Chalice's zip is left out of ours. name: its path in the zip."""
    return name.endswith("/") or LEFT_OUT.search(name) is not None


def twins(tree: Path) -> list[Path]:
    """Return shared libraries that a folder contains under several names. Only the name that
    programs link to is used.

    A wheel cannot contain symbolic links, so `libx.so.1` and `libx.so.1.2.3` are two files. The
    dynamic linker looks for the library's SONAME, which the file itself contains.
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
