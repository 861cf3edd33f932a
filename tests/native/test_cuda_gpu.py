"""Launches on CUDA: streams, graphs, devices, threads, launch attributes, memory for kernels, and errors."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import jit
from opgraft.jit.native import compat, make_handle

pytestmark = pytest.mark.gpu
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@jit
def add_n(x, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < size) + n, mask=at < size)


def ready(device="cuda"):
    """A tensor for `add_n`, which is launched in C on its device."""
    x = torch.zeros(64, device=device)
    for _ in range(3):
        add_n._memory._wait = 0
        add_n[(1,)](x, 5, 64, BLOCK=64)
    x.zero_()
    torch.cuda.synchronize()
    assert is_repeated(x)
    x.zero_()
    torch.cuda.synchronize()
    return x


def is_repeated(x) -> bool:
    dispatcher = add_n._memory.dispatcher
    return dispatcher.launch((1,), (x, 5, 64), {"BLOCK": 64}) is not NotImplemented


def test_torch_is_read_directly():
    """All that the fast path needs of torch is there; without it launches are right, and slow."""
    access = compat.torch_access()
    assert [name for name, value in access.items() if not value] == []


def test_a_launch_goes_to_the_current_stream():
    x, stream = ready(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        add_n[(1,)](x, 5, 64, BLOCK=64)
        assert not stream.query()
        done = torch.cuda.Event()
        done.record(stream)
    # The default stream does not wait for it, and the kernel waits behind the sleep.
    assert torch.cuda.default_stream().query()
    assert not done.query()
    done.synchronize()
    assert x.tolist() == [5.0] * 64


def test_a_handle_launches_on_the_stream_it_is_given():
    x, stream = ready(), torch.cuda.Stream()
    handle = add_n[(1,)](x, 5, 64, BLOCK=64).handle()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
    handle(stream.cuda_stream, x, 5, 64, 64, 1, 1, 1)
    assert torch.cuda.default_stream().query()
    assert not stream.query()
    stream.synchronize()
    assert x.tolist() == [10.0] * 64


@pytest.mark.parametrize("way", ["launch", "handle"])
def test_launches_are_captured_in_a_graph(way):
    x = ready()
    handle = add_n[(1,)](x, 5, 64, BLOCK=64).handle()
    x.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            if way == "launch":
                add_n[(1,)](x, 5, 64, BLOCK=64)
            else:
                handle(torch.cuda.current_stream().cuda_stream, x, 5, 64, 64, 1, 1, 1)
    torch.cuda.synchronize()
    assert x.tolist() == [0.0] * 64
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [30.0] * 64


def test_a_thread_without_a_context_launches():
    x, errors = ready(), []

    def work():
        try:
            add_n[(1,)](x, 5, 64, BLOCK=64)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert errors == []
    assert x.tolist() == [5.0] * 64


def test_threads_and_streams_launch_one_kernel_at_once():
    ready()

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros(64, device="cuda")
            for _ in range(500):
                add_n[(1,)](x, number, 64, BLOCK=64)
            stream.synchronize()
            return x.tolist() == [500.0 * number] * 64

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(2, 26)))


def test_the_gil_is_free_while_the_driver_waits():
    """The driver takes about a thousand launches and then waits for the GPU; Python threads go on."""
    x = ready()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)
    handle = add_n[(1,)](x, 5, 64, BLOCK=64).handle()

    def work():
        for _ in range(4000):
            handle(stream.cuda_stream, x, 5, 64, 64, 1, 1, 1)

    thread = threading.Thread(target=work)
    thread.start()
    longest, last = 0.0, time.perf_counter()
    while thread.is_alive():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    waited = stream.query()
    thread.join()
    torch.cuda.synchronize()
    assert longest < 0.2, (longest, waited)


# -- Devices -------------------------------------------------------------------------------------------------


def test_a_cpu_tensor_among_gpu_tensors_is_refused_by_name():
    @jit
    def copy(source, target):
        tl.store(target, tl.load(source))

    gpu, cpu = torch.ones(4, device="cuda"), torch.ones(4)
    for _ in range(3):
        copy[(1,)](gpu, gpu)
    with pytest.raises(ValueError, match=r"cpu tensor.*target: cpu"):
        copy[(1,)](gpu, cpu)


def test_one_kernel_serves_cpu_and_gpu_by_turns():
    on_gpu, on_cpu = ready(), ready("cpu")
    for _ in range(5):
        add_n[(1,)](on_gpu, 5, 64, BLOCK=64)
        add_n[(1,)](on_cpu, 5, 64, BLOCK=64)
    assert is_repeated(on_gpu) and is_repeated(on_cpu)
    assert on_gpu.tolist() == on_cpu.tolist() == [30.0] * 64


@two_gpus
def test_a_launch_goes_to_the_device_of_its_tensors():
    first, second = ready("cuda:0"), ready("cuda:1")
    for current in (0, 1):
        with torch.cuda.device(current):
            for _ in range(3):
                add_n[(1,)](first, 5, 64, BLOCK=64)
                add_n[(1,)](second, 7, 64, BLOCK=64)
            assert is_repeated(first) and is_repeated(second)
            assert torch.cuda.current_device() == current
    for device in (0, 1):
        torch.cuda.synchronize(device)
    assert first.tolist() == [40.0] * 64
    assert second.tolist() == [52.0] * 64


@two_gpus
def test_each_device_has_its_current_stream():
    x = ready("cuda:1")
    stream = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream), torch.cuda.device(0):
        pass
    torch.cuda.set_device(0)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        torch.cuda.set_device(0)
        add_n[(1,)](x, 5, 64, BLOCK=64)
        assert not stream.query()
    assert torch.cuda.default_stream("cuda:1").query()
    stream.synchronize()
    assert x.tolist() == [5.0] * 64


@two_gpus
def test_threads_launch_on_both_devices_at_once():
    def work(number):
        device = f"cuda:{number % 2}"
        x = torch.zeros(64, device=device)
        for _ in range(300):
            add_n[(1,)](x, 5, 64, BLOCK=64)
        torch.cuda.synchronize(device)
        return x.tolist() == [1500.0] * 64

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


# -- Launch attributes ---------------------------------------------------------------------------------------


@jit
def matmul(a, b, c, SIZE: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, inner = tl.arange(0, SIZE), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * SIZE + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * SIZE + columns[None, :], total)


def test_more_than_48_kilobytes_of_shared_memory():
    a, b = torch.randn(128, 256, device="cuda").half(), torch.randn(256, 128, device="cuda").half()
    c = torch.zeros(128, 128, device="cuda")
    for _ in range(3):
        c.zero_()
        compiled = matmul[(1,)](a, b, c, SIZE=128, K=256, BLOCK=64, num_stages=4)
        torch.testing.assert_close(c, a.float() @ b.float(), atol=0.1, rtol=0.01)
    assert compiled.metadata.shared > 48 * 1024
    assert compiled.handle().shared == compiled.metadata.shared


@jit
def meet(counter, out, PROGRAMS: tl.constexpr):
    """Every program waits for all the others: that ends only when they run at the same time."""
    tl.atomic_add(counter, 1)
    while tl.atomic_add(counter, 0) < PROGRAMS:
        pass
    tl.store(out + tl.program_id(0), 1)


def test_a_cooperative_launch():
    programs = 16
    for _ in range(3):
        counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        out = torch.zeros(programs, dtype=torch.int32, device="cuda")
        meet[(programs,)](counter, out, PROGRAMS=programs, launch_cooperative_grid=True)
        torch.cuda.synchronize()
        assert out.tolist() == [1] * programs


def test_a_cooperative_grid_that_cannot_run_at_once_is_an_error():
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    meet[(16,)](counter, out, PROGRAMS=16, launch_cooperative_grid=True)
    with pytest.raises(RuntimeError, match=r"cooperative launch.*meet.*1000000"):
        meet[(1_000_000,)](counter, out, PROGRAMS=16, launch_cooperative_grid=True)


@pytest.mark.skipif(torch.cuda.get_device_capability() < (9, 0) if torch.cuda.is_available() else True, reason="sm_90")
@pytest.mark.parametrize("num_ctas", [2, 4])
def test_a_cluster_launch(num_ctas):
    x = torch.zeros(4096, device="cuda")
    for _ in range(3):
        compiled = add_n[(2,)](x, 5, 4096, BLOCK=2048, num_ctas=num_ctas)
    torch.cuda.synchronize()
    assert compiled.metadata.num_ctas == num_ctas
    assert compiled.handle().num_ctas == num_ctas
    assert x.tolist() == [15.0] * 4096


@jit
def waits(x, size, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(x + at, value * 2 + 1, mask=at < size)


@pytest.mark.skipif(torch.cuda.get_device_capability() < (9, 0) if torch.cuda.is_available() else True, reason="sm_90")
def test_programmatic_dependent_launch():
    x = torch.zeros(1024, device="cuda")
    for _ in range(8):
        waits[(4,)](x, 1024, BLOCK=256, launch_pdl=True)
    torch.cuda.synchronize()
    assert x.tolist() == [255.0] * 1024


# -- Memory for kernels, descriptors -------------------------------------------------------------------------


@jit
def double_by_descriptor(x, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[SIZE, SIZE], strides=[SIZE, 1], block_shape=[BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, shape=[SIZE, SIZE], strides=[SIZE, 1], block_shape=[BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]) * 2)


def test_scratch_memory_comes_from_tritons_allocator():
    asked = []

    def allocate(size, alignment, stream):
        asked.append((size, alignment, stream))
        return torch.empty(size, device="cuda", dtype=torch.int8)

    triton.set_allocator(allocate)
    try:
        x = torch.randn(64, 64, device="cuda")
        for _ in range(3):
            out = torch.zeros_like(x)
            double_by_descriptor[(2, 2)](x, out, SIZE=64, BLOCK=32)
            torch.testing.assert_close(out, x * 2)
    finally:
        triton.set_allocator(triton.runtime._allocation.NullAllocator())
    if asked:  # before Hopper such a kernel needs none
        assert len(asked) == 3
        assert len(set(asked)) == 1


def test_without_an_allocator_a_kernel_that_needs_one_says_so():
    x = torch.randn(64, 64, device="cuda")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    compiled = double_by_descriptor[(2, 2)](x, torch.zeros_like(x), SIZE=64, BLOCK=32)
    triton.set_allocator(triton.runtime._allocation.NullAllocator())
    if not compiled.metadata.global_scratch_size:
        pytest.skip("needs no scratch memory on this GPU")
    with pytest.raises(RuntimeError, match="no allocator was set"):
        double_by_descriptor[(2, 2)](x, torch.zeros_like(x), SIZE=64, BLOCK=32)


@jit
def double_through(source, target, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]) * 2)


def test_host_tensor_descriptors_are_launched_as_triton_does():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(64, 64, device="cuda")
    for _ in range(3):
        out = torch.zeros_like(x)
        descriptors = [TensorDescriptor.from_tensor(tensor, [32, 32]) for tensor in (x, out)]
        double_through[(2, 2)](*descriptors, BLOCK=32)
        torch.testing.assert_close(out, x * 2)
    assert double_through._memory.dispatcher is None


# -- Errors --------------------------------------------------------------------------------------------------


def test_an_error_names_kernel_grid_and_arguments():
    x = ready()
    message = (
        r"Triton Error \[CUDA\]: invalid argument \(CUDA_ERROR_INVALID_VALUE\) launching add_n over the grid "
        r"\(1, 70000, 1\) with 128 threads a program.*; a grid has at most 65535 programs along its second and third "
        r"axis; arguments: x=Tensor\(torch.float32, shape \(64,\), cuda:0, 0x[0-9a-f]+\), n=5, size=64, BLOCK=64"
    )
    with pytest.raises(RuntimeError, match=message):
        add_n[(1, 70000)](x, 5, 64, BLOCK=64)
    add_n[(1,)](x, 5, 64, BLOCK=64)
    assert x.tolist() == [5.0] * 64


def test_a_handle_with_a_wrong_function_is_an_error():
    x = ready()
    compiled = add_n[(1,)](x, 5, 64, BLOCK=64)
    handle = make_handle("cuda", compiled.function, "Aiix", name="add_n", threads=4096)
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\].*launching add_n.*4096 threads"):
        handle(0, x, 5, 64, 64, 1, 1, 1)


def test_guards_hold_on_the_gpu():
    x = ready()
    compiled = add_n[(1,)](x, 5, 64, BLOCK=64)
    seen = []
    handle = compiled.handle(lambda *args: seen.append(args))
    handle(0, x[1:], 5, 64, 64, 1, 1, 1)
    handle(0, x, 5, 63, 64, 1, 1, 1)
    handle(0, x, 2**40, 64, 64, 1, 1, 1)
    assert len(seen) == 3


def test_an_empty_grid_launches_nothing():
    x = ready()
    add_n[(0,)](x, 5, 64, BLOCK=64)
    add_n[(1, 0)](x, 5, 64, BLOCK=64)
    torch.cuda.synchronize()
    assert x.tolist() == [0.0] * 64


def test_tritons_profiler_sees_every_launch(tmp_path):
    """Proton, told to listen to launch hooks: names from the metadata, and as many launches as there were."""
    import json

    import triton.profiler as proton

    x = ready()
    handle = add_n[(1,)](x, 5, 64, BLOCK=64).handle()
    stream = torch.cuda.current_stream().cuda_stream

    @jit(launch_metadata=lambda grid, metadata, arguments: {"name": f"named_{arguments['size']}", "bytes": 256})
    def named(x, n, size, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < size) + n, mask=at < size)

    named[(1,)](x, 5, 64, BLOCK=64)
    session = proton.start(str(tmp_path / "profile"), hook="triton")
    try:
        for _ in range(3):
            add_n[(1,)](x, 5, 64, BLOCK=64)
            named[(1,)](x, 5, 64, BLOCK=64)
        handle(stream, x, 5, 64, 64, 1, 1, 1)
        torch.cuda.synchronize()
    finally:
        proton.finalize(session)
    (file,) = tmp_path.glob("profile*.hatchet")
    counts = {}

    def walk(node):
        counts[node["frame"]["name"]] = counts.get(node["frame"]["name"], 0) + node["metrics"].get("count", 0)
        for child in node["children"]:
            walk(child)

    for root in json.loads(file.read_text()):
        if "frame" in root:
            walk(root)
    found = {name: count for name, count in counts.items() if name in ("add_n", "named_64")}
    assert set(found) == {"add_n", "named_64"}, counts
