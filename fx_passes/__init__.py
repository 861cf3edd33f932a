"""Passes over FX graphs, and the torch.compile backend `opgraft` that runs them.

``torch.compile(model, backend="opgraft")`` is Inductor with these passes.
"""
