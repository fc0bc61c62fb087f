"""Models. Kernels are tested on a GPU, and on the CPU in a process in which Triton interprets them."""

import os
import subprocess
import sys


def interpreted(module: str) -> None:
    """Run a test module as a program in which Triton interprets kernels."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", module], env=environment, check=True)
