"""Launch hooks around the launches of handles: profilers written for Triton see these launches too.

A handle that was given a `describe` asks in C, in a few nanoseconds, whether `knobs.runtime.launch_enter_hook` or
`launch_exit_hook` may be set, and then calls `launch_with_hooks`.
"""

from __future__ import annotations

from typing import Any

Watch = tuple[Any, Any, Any]


def no_hook_watches(missing: Any) -> list[Watch] | None:
    """Watches that hold while no launch hook is set; None when one is. `missing` is the extension's MISSING."""
    from triton import knobs

    runtime = knobs.runtime
    watches: list[Watch] = [(vars(knobs), "runtime", runtime)]
    for name in ("launch_enter_hook", "launch_exit_hook"):
        watches.append((vars(runtime), name, vars(runtime).get(name, missing)))
        hook = getattr(runtime, name, None)
        if hook is None:
            continue
        calls = getattr(hook, "calls", None)  # a chain of hooks, usually empty
        if calls != []:
            return None
        watches += [(vars(hook), "calls", calls), (calls, None, None)]
    return watches


def launch_with_hooks(handle: Any, stream: Any, *arguments: Any) -> object:
    """`handle.launch(stream, *arguments)` between the launch hooks. `arguments` end with the grid."""
    from triton import knobs

    from .build import extension

    native: Any = extension()
    if native is not None:
        watches = no_hook_watches(native.MISSING)
        if watches is not None:
            native.no_hooks_set(watches)
            return handle.launch(stream, *arguments)
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    metadata = handle.describe(stream, *arguments)
    if enter is not None:
        enter(metadata)
    result = handle.launch(stream, *arguments)
    if leave is not None:
        leave(metadata)
    return result
