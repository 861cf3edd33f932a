"""Launch arguments taken apart into what a graph carries and what is known, and put together again."""

import enum

import numpy as np
import torch

from opgraft.integration.arguments import flatten, leaves, mark_written, unflatten


class Mode(enum.IntEnum):
    FAST = 1


def roundtrip(bound, constexprs=()):
    flat = flatten(bound, constexprs)
    return flat, unflatten(flat.kinds, list(bound), flat.values, flat.literals)


def test_each_kind_has_its_letter():
    bound = {"x": torch.ones(1), "n": 3, "eps": 1e-6, "flag": True, "bias": None, "BLOCK": 64}
    flat, again = roundtrip(bound, ["BLOCK"])
    assert flat.kinds == "tifbcc"
    assert flat.labels == ("x", "n", "eps", "flag")
    assert flat.literals == {"bias": None, "BLOCK": 64}
    assert again == bound


def test_tuples_are_opened_at_any_depth():
    bound = {"pair": (torch.ones(1), (3, None)), "n": 2}
    flat, again = roundtrip(bound)
    assert flat.kinds == "LtLicJJi"
    assert flat.labels == ("pair_0", "pair_1_0", "n")
    assert flat.literals == {"pair_1_1": None}
    assert again == bound


def test_numpy_scalars_and_int_enums_travel_as_numbers_and_dtypes_as_literals():
    flat, _ = roundtrip({"n": np.int32(4), "eps": np.float32(0.5), "mode": Mode.FAST, "dtype": torch.float16})
    assert flat.kinds == "ific"


def test_written_tensors_are_marked_and_nothing_else():
    kinds = "tLtiJcif"
    assert leaves(kinds) == "ttiif"
    assert mark_written(kinds, [False, True, False, False, False]) == "tLwiJcif"
