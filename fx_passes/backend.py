"""The torch.compile backend `opgraft`: Inductor with our passes.

``torch.compile(model, backend="opgraft")``. Options of :func:`torch.compile` go to Inductor.
Passes that the user configured for Inductor stay and run first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["opgraft"]


def opgraft(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Compile a graph that Dynamo captured; torch.compile calls this."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    from .passes import Combined, post_grad_passes

    mode = kwargs.pop("mode", None)
    patches = dict(options or {})
    if mode and mode != "default":
        patches = {**torch._inductor.list_mode_options(mode), **patches}
    users = patches.get("post_grad_custom_post_pass", config.post_grad_custom_post_pass)
    patches["post_grad_custom_post_pass"] = Combined(users, post_grad_passes())
    return compile_fx(gm, example_inputs, config_patches=patches)
