"""Kernels as torch ops: schema, fake, autograd, decomposition, Dynamo, Inductor, cache identity.

The entry point is :func:`custom_op` (in :mod:`.ops`). The life of an op, by file: `schema` makes it
from a body's annotations; `body` runs the body and checks what it writes; `launching` takes launches
that are traced, `launch_op` puts them into a graph; `autograd` differentiates; `identity` tells the
compile caches what an op depends on; `dynamo` and `kernel_variable` trace bare launches; `lowering`
and `inductor` write launches into the generated wrapper, where `handles` resolves them.
"""

from .ops import CustomOp, custom_op

__all__ = ["CustomOp", "custom_op"]
