"""Where the extension ``forebay._core`` is: inside the package, or in a build folder of cargo's.

It is linked with ``libforebay.so`` beside it, so to choose one is to choose the other. The variable ``FOREBAY_LIBRARY``
names the library of another build, such as ``target/debug/libforebay.so``, whose extension is then taken.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Optional

_NAME = f"{__package__}._core"
_BUILD = "`cargo build --release && cargo build --release -p forebay-python` builds both"


def _find() -> Optional[str]:
    """The file of the extension; None where Python's own search finds it.

    Raises
    ------
    ImportError
        If there is none.
    """
    here = os.path.dirname(os.path.realpath(__file__))
    inside = any(os.path.exists(os.path.join(here, "_core" + suffix)) for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    if named := os.environ.get("FOREBAY_LIBRARY"):
        if not os.path.exists(named):
            raise ImportError(f"FOREBAY_LIBRARY is {named}, and there is no such file: {_BUILD}")
        folder = os.path.dirname(os.path.realpath(named))
    else:
        folder = here if inside else os.path.join(os.path.dirname(os.path.dirname(here)), "target", "release")
    if inside and folder == here:
        return None
    file = os.path.join(folder, "libforebay_core.so")
    if not os.path.exists(file):
        raise ImportError(f"{file} is not there: install the package with `pip install .`; in a checkout {_BUILD}")
    return file


def load() -> None:
    """Imports the extension.

    Raises
    ------
    ImportError
        If it is not there, or lacks something: its library, or a function of it.
    """
    file = _find()
    if file is None or _NAME in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(_NAME, file)
    assert spec is not None and spec.loader is not None  # the ending says what it is
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module


load()
