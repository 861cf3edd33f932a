"""Watch what the runtime does: each compile with its reason, each launch with its grid and arguments.

Run it:  python examples/observe_launches.py [cpu|cuda]

It uses the hooks that Triton has, so the same code observes Triton's own kernels.
"""

import argparse
import time

import torch
import triton
import triton.language as tl
from triton import knobs

from opgraft.jit import jit


def describe_launch(grid, metadata, arguments):
    """What `launch_metadata` adds to the payload of the launch hooks: any facts about this launch."""
    sizes = {name: tuple(value.shape) for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    return {"grid": grid, "shapes": sizes, "num_warps": metadata.num_warps}


@jit
def silu(x):
    return x * tl.sigmoid(x)


@jit(launch_metadata=describe_launch)
def gated(x, gate, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + i, mask=mask) * silu(tl.load(gate + i, mask=mask))
    tl.store(out + i, value, mask=mask)


class Observer:
    """Prints compiles and launches while it is entered, and counts them."""

    def __init__(self):
        self.compiles = self.launches = 0
        self.started = 0.0

    def before_compile(self, *, repr, compile, **event):
        self.started = time.perf_counter()
        kinds = ", ".join(f"{name}: {kind}" for name, kind in compile["signature"].items())
        print(f"compile  {event['fn'].name}({kinds})")
        return False  # a true answer would veto the compile

    def after_compile(self, **event):
        self.compiles += 1
        print(f"         ready after {1e3 * (time.perf_counter() - self.started):.0f} ms, key {event['key']}")

    def enter_launch(self, metadata):
        self.launches += 1
        payload = metadata.get()
        facts = ", ".join(f"{name}={value}" for name, value in payload.items() if name not in ("name", "function"))
        print(f"launch   {payload['name']}: {facts}")

    def __enter__(self):
        knobs.runtime.jit_cache_hook = self.before_compile
        knobs.runtime.jit_post_compile_hook = self.after_compile
        knobs.runtime.launch_enter_hook.add(self.enter_launch)
        return self

    def __exit__(self, *error):
        knobs.runtime.jit_cache_hook = None
        knobs.runtime.jit_post_compile_hook = None
        knobs.runtime.launch_enter_hook.remove(self.enter_launch)


def run(device):
    """Launch `gated` on a few sizes under observation; returns the observer."""
    with Observer() as observer:
        for n in (1000, 1008, 1001, 1000):
            x, gate = torch.randn(n, device=device), torch.randn(n, device=device)
            out = torch.empty_like(x)
            gated[(triton.cdiv(n, 256),)](x, gate, out, n, BLOCK=256)
            torch.testing.assert_close(out, x * torch.nn.functional.silu(gate))
    return observer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cpu", choices=["cpu", "cuda"])
    observer = run(parser.parse_args().device)
    print(f"{observer.launches} launches, {observer.compiles} compiles")
