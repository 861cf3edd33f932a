"""What the tests of processes run: `worker.py command`, with the cache folder in TRITON_CACHE_DIR.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

import store_kernels as kernels


def compile_once(block: str = "64", wait_for: str = "") -> dict:
    """Compile, after the file `wait_for` exists; the outcome and a digest of the code."""
    import hashlib

    from opgraft.jit.compile import compile, on_compile

    seen = []
    on_compile(seen.append)
    while wait_for and not os.path.exists(wait_for):
        time.sleep(0.002)
    start = time.perf_counter()
    kernel = compile(kernels.add_source(int(block)), kernels.CUDA)
    return {
        "seconds": time.perf_counter() - start,
        "outcome": seen[0].outcome,
        "code": hashlib.sha256(kernel.kernel).hexdigest(),
        "hash": kernel.hash,
    }


def key() -> dict:
    """The key of a kernel whose constexprs are of many kinds."""
    from opgraft.jit.drivers import backend_for
    from opgraft.jit.store_key import store_key

    backend = backend_for(kernels.CUDA)
    options = backend.parse_options({})
    return store_key(kernels.many_constants_source(), kernels.CUDA, backend, options, {})


def load_timed(times: str = "5") -> dict:
    """Seconds that the first load from the store takes, imports and the reading of the source aside."""
    from triton._C.libtriton import get_cache_invalidating_env_vars, ir  # noqa: F401

    from opgraft.jit.compile import compile

    source = kernels.add_source()
    start = time.perf_counter()
    kernel = compile(source, kernels.CUDA)
    first = time.perf_counter() - start
    rest = []
    for _ in range(int(times)):
        start = time.perf_counter()
        compile(source, kernels.CUDA)
        rest.append(time.perf_counter() - start)
    return {"first": first, "again": min(rest), "hash": kernel.hash}


def launch_scaled(kernel) -> bool:
    import torch

    x, out = torch.randn(64), torch.zeros(64)
    kernel[(1,)](x, (out, 3), kernels.double, 50, BLOCK=64)
    return bool(torch.equal(out[:50], x[:50] * 2 + 3))


def preload_scaled(data: str) -> dict:
    """Preload it, then launch: what was compiled or loaded, and how often a hook was asked."""
    from triton import knobs

    from opgraft.jit import jit, on_compile

    seen, asked = [], []
    on_compile(seen.append)
    knobs.runtime.jit_cache_hook = lambda **call: asked.append(call) and None
    kernel = jit(kernels.scaled)
    kernel.preload(data)
    equal = launch_scaled(kernel)
    return {"outcomes": [event.outcome for event in seen], "asked": len(asked), "equal": equal}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps(globals()[command](*arguments)))
