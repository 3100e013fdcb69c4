"""Exits with 0 where the CUDA driver loads and has a device, else with 1. Needs nothing but Python."""

import ctypes
import sys


def devices() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


if __name__ == "__main__":
    sys.exit(0 if devices() > 0 else 1)
