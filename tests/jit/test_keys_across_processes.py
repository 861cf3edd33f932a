"""Keys are equal in every process: no address, no hash seed, no order of hashing takes part."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, json, enum, collections
import torch, triton, triton.language as tl
from opgraft.jit import jit, constexpr_function
from opgraft.jit import keys

class Mode(enum.Enum):
    A = 1
class Thing:
    def __init__(self, **values): self.__dict__.update(values)
Point = collections.namedtuple("Point", "x y")
CONFIG = tl.constexpr(frozenset({"alpha", "beta", "gamma"}))
TABLE = tl.constexpr({"b": 1, "a": (2, Mode.A)})
THING = tl.constexpr(Thing(p=1, q={3, 4, 5}))

@jit
def leaf(x): return x + len(CONFIG)
@jit
def left(x): return leaf(x) + right(x, 0)
@jit
def right(x, N: tl.constexpr): return left(x) if N else leaf(x)
@constexpr_function
def pick(n): return TABLE["b"] + n
@jit
def kernel(x, N: tl.constexpr):
    tl.store(x, left(1) + right(2, 0) + pick(N) + THING.p)

order = sys.argv[1]
functions = dict(leaf=leaf, left=left, right=right, pick=pick, kernel=kernel)
padding = [object() for _ in range(int(sys.argv[2]))]
for name in order.split(","):
    functions[name].cache_key
found = {name: fn.cache_key for name, fn in functions.items()}
specialization = [
    ("*fp32", "D"), ("constexpr", CONFIG), ("constexpr", Thing(s={1, 2}, t=Mode.A)), ("constexpr", torch.float16),
    ("constexpr", tl.float16), ("constexpr", kernel), (("i32", "constexpr"), ("", Point(1, "y"))), ("constexpr", pick),
]
options = {"num_warps": 4, "debug": False, "extern_libs": {"b": "2", "a": "1"}}
if order.startswith("kernel"):
    options = dict(reversed(options.items()))
found["text"] = keys.key_text(specialization, options)
print(json.dumps(found))
"""


def run(program, seed, *arguments):
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    result = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "keys_program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def reference(program):
    return run(program, 0, "leaf,left,right,pick,kernel", 0)


def test_keys_are_equal_whatever_the_seed_the_order_and_the_addresses(program, reference):
    assert run(program, 1, "kernel,right,left", 100000) == reference


def test_no_address_stands_in_a_key(reference):
    assert " at 0x" not in reference["text"]
