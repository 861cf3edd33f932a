"""The graphs of the sentence encoder's ops at each level, pinned: what a user's own suite does with its ops."""

import sys
from pathlib import Path

import pytest
import torch
from expecttest import TestCase

from opgraft.testing import capture

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import encoder_ops


class Snapshots(TestCase):
    maxDiff = None

    def test_add_layer_norm_in_a_model(self):
        def block(x, residual, weight, bias):
            return encoder_ops.add_layer_norm(torch.tanh(x), residual, weight, bias, 1e-12) * 2

        captured = capture(block, torch.randn(4, 384), torch.randn(4, 384), torch.ones(384), torch.zeros(384))
        self.assertExpectedInline(
            captured.dynamo[0],
            """\
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 384]", L_residual_: "f32[4, 384]", L_weight_: "f32[384]", L_bias_: "f32[384]"):
        l_x_ = L_x_
        l_residual_ = L_residual_
        l_weight_ = L_weight_
        l_bias_ = L_bias_

        tanh: "f32[4, 384]" = torch.tanh(l_x_);  l_x_ = None

        add_layer_norm_default: "f32[4, 384]" = torch.ops.encoder.add_layer_norm.default(tanh, l_residual_, l_weight_, l_bias_, 1e-12);  tanh = l_residual_ = l_weight_ = l_bias_ = None

        mul: "f32[4, 384]" = add_layer_norm_default * 2;  add_layer_norm_default = None
        return (mul,)
""",
        )
        self.assertExpectedInline(
            captured.post_grad[0],
            """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 384]", arg1_1: "f32[4, 384]", arg2_1: "f32[384]", arg3_1: "f32[384]"):
        tanh: "f32[4, 384]" = torch.ops.aten.tanh.default(arg0_1);  arg0_1 = None

        empty: "f32[4, 384]" = torch.ops.aten.empty.memory_format([4, 384], dtype = torch.float32, layout = torch.strided, device = device(type='cpu'), pin_memory = False)
        add_layer_norm_kernel_ttttwifc = torch.ops.opgraft.add_layer_norm_kernel.ttttwifc(tanh, arg1_1, arg2_1, arg3_1, empty, 384, 1e-12, grid = [4], constexprs = 'BLOCK=512', kernel_id = 'encoder_ops:add_layer_norm_kernel@...');  tanh = arg1_1 = arg2_1 = arg3_1 = add_layer_norm_kernel_ttttwifc = None

        mul: "f32[4, 384]" = torch.ops.aten.mul.Tensor(empty, 2);  empty = None
        return (mul,)
""",
        )
        self.assertExpectedInline(
            "\n".join(captured.wrapper),
            """\
_add_layer_norm_kernel_0 = _opgraft_handles.resolve('encoder_ops:add_layer_norm_kernel@...', 'ttttwifc', ('*fp32', '*fp32', '*fp32', '*fp32', '*fp32', 'i32', 'fp32'), 'BLOCK=512', 'cpu')
buf0 = empty_strided_cpu((4, 384), (384, 1), torch.float32)
buf1 = empty_strided_cpu((4, 384), (384, 1), torch.float32)
_add_layer_norm_kernel_0(0, buf1, arg1_1, arg2_1, arg3_1, buf0, 384, 1e-12, 4, 1, 1)""",
        )
        self.assertEqual(captured.copies, 0)
        self.assertEqual(captured.dispatcher_calls, 0)

    def test_bias_gelu_with_a_dynamic_length(self):
        captured = capture(encoder_ops.bias_gelu, torch.randn(3, 1536), torch.randn(1536), dynamic=True)
        self.assertExpectedInline(
            captured.post_grad[0],
            """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "Sym(s0)", arg1_1: "Sym(s1)", arg2_1: "f32[s0, s1]", arg3_1: "f32[s1]"):
        add_3: "Sym(s1 + 512)" = arg1_1 + 512
        sub_2: "Sym(s1 + 511)" = add_3 - 1;  add_3 = None
        floordiv_1: "Sym(((s1 + 511)//512))" = sub_2 // 512;  sub_2 = None
        empty: "f32[s0, s1]" = torch.ops.aten.empty.memory_format([arg0_1, arg1_1], dtype = torch.float32, layout = torch.strided, device = device(type='cpu'), pin_memory = False)
        bias_gelu_kernel_ttwic = torch.ops.opgraft.bias_gelu_kernel.ttwic(arg2_1, arg3_1, empty, arg1_1, grid = [arg0_1, floordiv_1], constexprs = 'BLOCK=512', kernel_id = 'encoder_ops:bias_gelu_kernel@...');  arg2_1 = arg3_1 = arg1_1 = arg0_1 = floordiv_1 = bias_gelu_kernel_ttwic = None
        return (empty,)
""",
        )
        self.assertExpectedInline(
            "\n".join(captured.wrapper),
            """\
_bias_gelu_kernel_0 = _opgraft_handles.resolve('encoder_ops:bias_gelu_kernel@...', 'ttwic', ('*fp32', '*fp32', '*fp32', 'i32?'), 'BLOCK=512', 'cpu')
buf0 = empty_strided_cpu((s0, s1), (s1, 1), torch.float32)
_bias_gelu_kernel_0(0, arg2_1, arg3_1, buf0, s1, s0, (511 + s1) // 512, 1)""",
        )

    def test_masked_softmax(self):
        scores, mask = torch.randn(2, 12, 7, 7), torch.ones(2, 7, dtype=torch.bool)
        captured = capture(encoder_ops.masked_softmax, scores, mask, 0.125)
        self.assertExpectedInline(
            "\n".join(captured.wrapper),
            """\
_masked_softmax_kernel_0 = _opgraft_handles.resolve('encoder_ops:masked_softmax_kernel@...', 'ttwiifc', ('*fp32', '*u1', '*fp32', 'i32', 'i32', 'fp32'), 'BLOCK=512', 'cpu')
buf0 = empty_strided_cpu((2, 12, 7, 7), (588, 49, 7, 1), torch.float32)
_masked_softmax_kernel_0(0, arg0_1, arg1_1, buf0, 7, 84, 0.125, 168, 1, 1)""",
        )

    def test_mean_pool(self):
        captured = capture(encoder_ops.mean_pool, torch.randn(2, 7, 384), torch.ones(2, 7, dtype=torch.bool))
        self.assertExpectedInline(
            "\n".join(captured.wrapper),
            """\
_mean_pool_kernel_0 = _opgraft_handles.resolve('encoder_ops:mean_pool_kernel@...', 'ttwiic', ('*fp32', '*u1', '*fp32', 'i32', 'i32'), 'BLOCK=512', 'cpu')
buf0 = empty_strided_cpu((2, 384), (384, 1), torch.float32)
_mean_pool_kernel_0(0, arg0_1, arg1_1, buf0, 7, 384, 2, 1, 1)""",
        )


if __name__ == "__main__":
    pytest.main([__file__])
