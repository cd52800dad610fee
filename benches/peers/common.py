"""Shared by all scripts of this folder: packages, GPUs, clocks, and the context that each result records.

Must not know engines or queries.
"""

import argparse
import datetime
import gc
import importlib
import os
import platform
import statistics
import sys
import time

# Minimum number of runs of a hot median.
HOT_RUNS_MIN = 3
# Prefixes of environment variables that change how an engine runs. Results record them.
ENGINE_VARIABLES = (
    "CUDF_POLARS",
    "DATAFUSION_",
    "KVIKIO_",
    "LIBCUDF_",
    "POLARS_GPU_",
    "POLARS_MAX_THREADS",
    "RAPIDSMPF_",
)


class PeerError(Exception):
    """An error that the user can fix. The message says how."""


def need(module, requirements):
    """Imports `module`. On failure, names the requirements file of its package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerError(f"cannot import {module} ({error}): pip install -r {requirements}") from error


def need_gpu():
    """Opens the first GPU and returns its name."""
    runtime = need("cuda.bindings.runtime", "requirements-gpu.txt")
    error, count = runtime.cudaGetDeviceCount()
    if error != runtime.cudaError_t.cudaSuccess or count == 0:
        raise PeerError(f"no usable NVIDIA GPU ({error.name}): this engine needs one, and a driver for CUDA 13")
    error, properties = runtime.cudaGetDeviceProperties(0)
    if error != runtime.cudaError_t.cudaSuccess:
        raise PeerError(f"cannot open the GPU: {error.name}")
    name = properties.name
    return (name.decode() if isinstance(name, bytes) else name).rstrip("\0")


def processor_name():
    """The model of the CPU, or its architecture if the model is unknown."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def core_count():
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def without_folders(word):
    """A word of a command. A path is reduced to its last part, since folders depend on the machine."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return flag + equals + (os.path.basename(value.rstrip("/")) if os.path.exists(value) else value)


def circumstances(device):
    """Machine, cores, date and command, which every result records."""
    return {
        "device": device,
        "processor": processor_name(),
        "cores": core_count(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(without_folders(word) for word in sys.argv),
        "environment": {
            name: without_folders(value)
            for name, value in sorted(os.environ.items())
            if name.startswith(ENGINE_VARIABLES)
        },
    }


def elapsed_ms(action):
    """Runs `action`, and returns its milliseconds and its result. Garbage is collected before the clock starts."""
    gc.collect()
    start_ns = time.perf_counter_ns()
    result = action()
    return (time.perf_counter_ns() - start_ns) / 1e6, result


def median_ms(times_ms):
    """The median, rounded to microseconds."""
    return round(statistics.median(times_ms), 3)


def hot_runs(text):
    """Parses a number of hot runs."""
    count = int(text)
    if count < HOT_RUNS_MIN:
        raise argparse.ArgumentTypeError(f"a hot median needs at least {HOT_RUNS_MIN} runs")
    return count


def run_main(main):
    """Runs a script. Exit status: 0 for success, 1 if something failed, 2 if the script could not start."""
    try:
        status = main()
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    return status
