"""What an op depends on: every edit shows, nothing else does, in any process."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from opgraft.integration.identity import identity

SCALE = 2.0
TABLE = {"a": [1, 2], "b": (3.0, "x")}


def helper(x):
    return x * SCALE


def make(source, name="f", **scope):
    """A function from source, whose globals are `scope`."""
    scope = {"__name__": "user_module", **scope}
    exec(textwrap.dedent(source), scope)
    return scope[name]


BASE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "edited",
    [
        "def f(x):\n    return x + 2\n",
        "def f(x):\n    return x - 1\n",
        "def f(x):\n    return abs(x) + 1\n",
        "def f(x, y=1):\n    return x + 1\n",
        "def f(x):\n    return [x + 1 for _ in x]\n",
    ],
)
def test_an_edit_of_the_body_shows(edited):
    assert identity(make(BASE)) != identity(make(edited))


def test_an_edit_of_the_layout_or_a_comment_does_not_show():
    assert identity(make(BASE)) == identity(make("\n\n# why\ndef f(x):\n    return x + 1  # plus one\n"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        ("a", "b"),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        (torch.float16, torch.float32),
        (torch.ones(2), torch.zeros(2)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    ],
)
def test_a_changed_global_shows(old, new):
    source = "def f(x):\n    return x, G\n"
    assert identity(make(source, G=old)) != identity(make(source, G=new))
    assert identity(make(source, G=old)) == identity(make(source, G=old))


def test_a_changed_default_or_closure_shows():
    def closed(value):
        return lambda x: x + value

    def default(value):
        def f(x, y=value):
            return x + y

        return f

    assert identity(closed(1)) != identity(closed(2))
    assert identity(default(1)) != identity(default(2))


def test_a_changed_helper_shows_through_functions_and_modules():
    import types

    one = make("def h(x):\n    return x\n", name="h")
    two = make("def h(x):\n    return -x\n", name="h")
    caller = "def f(x):\n    return h(x)\n"
    assert identity(make(caller, h=one)) != identity(make(caller, h=two))
    through = "def f(x):\n    return m.h(x)\n"
    modules = []
    for function in (one, two):
        module = types.ModuleType("user_helpers")
        module.h = function
        modules.append(module)
    assert identity(make(through, m=modules[0])) != identity(make(through, m=modules[1]))


def test_an_unrelated_global_does_not_show():
    assert identity(make(BASE, G=1)) == identity(make(BASE, G=2))


def test_recursion_ends():
    source = "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\n"
    assert identity(make(source)) == identity(make(source))


def test_an_object_without_content_never_matches_by_chance():
    source = "def f(x):\n    return G(x)\n"
    assert identity(make(source, G=iter([1]))) != identity(make(source, G=iter([2])))


def test_it_is_the_same_in_every_process_and_for_every_hash_seed(tmp_path):
    module = tmp_path / "user_op.py"
    module.write_text(
        "import torch\nNAMES = {'x', 'y', 'z'}\nTABLE = {'a': 1, 'b': (2, 3)}\n"
        "def helper(x):\n    return x * 2 if x in {'p', 'q', 'r'} else x\n"
        "def body(x):\n    return helper(x), NAMES, TABLE, torch.float16, torch.empty_like\n"
    )
    script = "import user_op; from opgraft.integration.identity import identity; print(identity(user_op.body))"
    digests = set()
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1
