"""Damaged input, made by rules from sound input; every seed gives the same damage. `python -m tests.fuzz --help`.

The environment variable XCLEARN_FUZZ_NATIVE names another build of the native core, that with sanitizers.
"""

import importlib.util
import os
import sys

if path := os.environ.get("XCLEARN_FUZZ_NATIVE"):
    spec = importlib.util.spec_from_file_location("xclearn.kernels._native", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["xclearn.kernels._native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["xclearn.kernels._native"])
