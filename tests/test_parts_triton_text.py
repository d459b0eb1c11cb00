"""The Triton kernels of the label side against their plain forms: on a GPU, else in Triton's interpreter on the CPU.

Skipped where triton is not installed, as it comes with CUDA builds of PyTorch only. The interpreter has to be chosen
before triton is imported, so the comparisons run in a process of their own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "speed" / "triton_checks.py"


def test_kernels_are_their_plain_forms():
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, SCRIPT, "cpu"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dropout_of_the_hash" in done.stdout
