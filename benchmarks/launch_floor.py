"""The least that a launch from Python can cost: a C extension that does nothing but launch.

`build()` returns a module with two functions over the same arguments, `(function, on_cuda, stream,
n_pointers, *arguments)`. The first `n_pointers` arguments are addresses, or tensors whose `data_ptr()` is
called; the rest are passed as int32. The grid is one program.

- `launch(...)` launches once;
- `loop(..., iterations)` launches in a loop in C and returns the nanoseconds of one launch.
"""

from types import ModuleType

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

typedef unsigned u;
typedef int (*CudaLaunch)(void*, u, u, u, u, u, u, u, void*, void**, void**);
typedef void (*CpuKernel)(int32_t, int32_t, int32_t, int32_t, void**);
enum { MOST = 32 };

static CudaLaunch cuda_launch;
static PyObject* name_data_ptr;

typedef struct { void *function, *stream; int on_cuda; uint64_t values[MOST]; void* parameters[MOST + 2]; } Call;

static int read_call(Call* call, PyObject* const* args, Py_ssize_t n) {
  static uint64_t no_scratch;
  call->function = PyLong_AsVoidPtr(args[0]);
  call->on_cuda = args[1] == Py_True;
  call->stream = PyLong_AsVoidPtr(args[2]);
  Py_ssize_t pointers = PyLong_AsSsize_t(args[3]), count = n - 4;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = args[4 + i];
    call->parameters[i] = &call->values[i];
    if (i >= pointers || PyLong_CheckExact(value)) {
      call->values[i] = PyLong_AsUnsignedLongLong(value);
    } else {
      PyObject* address = PyObject_CallMethodNoArgs(value, name_data_ptr);
      if (!address) return -1;
      call->values[i] = PyLong_AsUnsignedLongLong(address);
      Py_DECREF(address);
    }
  }
  call->parameters[count] = call->parameters[count + 1] = &no_scratch;
  if (call->on_cuda && !cuda_launch) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    cuda_launch = driver ? (CudaLaunch)dlsym(driver, "cuLaunchKernel") : 0;
    if (!cuda_launch) PyErr_SetString(PyExc_RuntimeError, "no CUDA driver");
  }
  return PyErr_Occurred() ? -1 : 0;
}

static int run_call(Call* call) {
  if (call->on_cuda)
    return cuda_launch(call->function, 1, 1, 1, 128, 1, 1, 0, call->stream, call->parameters, 0);
  ((CpuKernel)call->function)(1, 1, 1, 1, call->parameters);
  return 0;
}

static PyObject* launch(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  Call call;
  if (read_call(&call, args, n) < 0) return 0;
  int failed = run_call(&call);
  if (failed) return PyErr_Format(PyExc_RuntimeError, "CUDA error %d", failed);
  Py_RETURN_NONE;
}

static PyObject* loop(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  Call call;
  long iterations = PyLong_AsLong(args[n - 1]);
  if (read_call(&call, args, n - 1) < 0) return 0;
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (long i = 0; i < iterations; ++i) {
    int failed = run_call(&call);
    if (failed) return PyErr_Format(PyExc_RuntimeError, "CUDA error %d", failed);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return PyFloat_FromDouble(((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / iterations);
}

static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, 0},
    {"loop", (PyCFunction)(void (*)(void))loop, METH_FASTCALL, 0},
    {0, 0, 0, 0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "launch_floor", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_launch_floor(void) {
  name_data_ptr = PyUnicode_InternFromString("data_ptr");
  return PyModule_Create(&definition);
}
"""


def build() -> ModuleType:
    """Compile the extension, or take it from Triton's cache."""
    from triton.runtime.build import compile_module_from_src

    return compile_module_from_src(SOURCE, "launch_floor", libraries=["dl"])
