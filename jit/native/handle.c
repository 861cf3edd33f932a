/* Handle: one compiled kernel, resolved down to its address, called as
 *
 *     handle(stream, *arguments, grid0, grid1, grid2)
 *
 * The arguments are those of the kernel's signature, flattened. `codes` (scalar.c) says how each is passed and what must
 * hold for it; where that fails, the whole call goes to `fallback`, or an error names the argument.
 */
#include "launch.h"

/* Device memory that a kernel needs besides its arguments: asked of Python for each launch. */
typedef struct {
  int64_t bytes_per_program;
  int64_t alignment;
  PyObject *allocate; /* (bytes, alignment, stream) -> object with data_ptr(); NULL: none needed */
} Scratch;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  bool on_cuda;
  void *function;
  Py_ssize_t n_codes, n_passed;
  char *codes;
  CudaLaunch cuda;
  Scratch scratch[2]; /* global, profile */
  PyObject *name;
  PyObject *argument_names; /* tuple of str */
  PyObject *fallback;       /* called when a guard fails; None: an error */
  PyObject *owner;          /* whatever must live as long as `function` */
  PyObject *after_launch;   /* called without arguments after each launch on the CPU; None: nothing */
  PyObject *describe;       /* makes what launch hooks receive; None: they are not called */
} Handle;

static PyTypeObject Handle_Type;

/* Allocates scratch memory into `slot`. Returns its owner (a new reference; None without scratch), or NULL. */
static PyObject *scratch_allocate(const Scratch *scratch, void *stream, const int32_t grid[3], Slot *slot) {
  slot->u64 = 0;
  if (LIKELY(!scratch->allocate)) return Py_NewRef(Py_None);
  int64_t bytes;
  if (UNLIKELY(__builtin_mul_overflow((int64_t)grid[0] * grid[1] * grid[2], scratch->bytes_per_program, &bytes))) {
    PyErr_Format(PyExc_OverflowError, "scratch memory for the grid (%d, %d, %d) is more than 2**63 bytes", grid[0], grid[1],
                 grid[2]);
    return NULL;
  }
  PyObject *memory = PyObject_CallFunction(scratch->allocate, "LLK", (long long)bytes, (long long)scratch->alignment,
                                           (unsigned long long)(uintptr_t)stream);
  if (memory && read_pointer(memory, &slot->u64) < 0) Py_CLEAR(memory);
  return memory;
}

static void raise_cuda_error(CUresult result, Handle *handle, PyObject *const *arguments, const int32_t grid[3]) {
  const char *name = NULL, *text = NULL;
  cuda_driver.error_name(result, &name);
  cuda_driver.error_text(result, &text);
  PyObject *values = PyTuple_New(handle->n_codes);
  if (!values) return;
  for (Py_ssize_t i = 0; i < handle->n_codes; ++i) PyTuple_SET_ITEM(values, i, Py_NewRef(arguments[i]));
  PyObject *error =
      PyObject_CallFunction(torch_access.cuda_error, "izzON(iii)", result, name, text, handle, values, grid[0], grid[1],
                            grid[2]);
  if (!error) return;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
}

static void raise_guard_error(Handle *handle, Py_ssize_t index, PyObject *value) {
  PyObject *error = PyObject_CallFunction(torch_access.guard_error, "OnO", handle, index, value);
  if (!error) return;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
}

static int handle_launch_cuda(Handle *handle, void *stream, PyObject *const *arguments, const int32_t grid[3],
                              Slot *slots, void **parameters) {
  int status = -1;
  PyObject *memory[2] = {NULL, NULL};
  if (UNLIKELY((int64_t)grid[0] * handle->cuda.ctas > INT32_MAX)) {
    PyErr_Format(PyExc_ValueError, "%U: the grid (%d, %d, %d) with clusters of %u has more than 2**31 - 1 blocks in a row",
                 handle->name, grid[0], grid[1], grid[2], handle->cuda.ctas);
    return -1;
  }
  for (int i = 0; i < 2; ++i) {
    Slot *slot = &slots[handle->n_passed + i];
    parameters[handle->n_passed + i] = slot;
    memory[i] = scratch_allocate(&handle->scratch[i], stream, grid, slot);
    if (!memory[i]) goto done;
  }
  CUresult result;
  Py_BEGIN_ALLOW_THREADS;
  result = cuda_launch(&handle->cuda, handle->function, stream, grid, parameters);
  Py_END_ALLOW_THREADS;
  if (UNLIKELY(result != CUDA_SUCCESS))
    raise_cuda_error(result, handle, arguments, grid);
  else
    status = 0;
done:
  Py_XDECREF(memory[0]);
  Py_XDECREF(memory[1]);
  return status;
}

/* Launches over `grid`. `slots` holds the packed parameters, with room for two more; `arguments` are named in errors.
 * Returns 0, or -1 with an exception. The GIL is free while the kernel or the driver runs. */
static int handle_launch(Handle *handle, void *stream, PyObject *const *arguments, const int32_t grid[3], Slot *slots) {
  int64_t programs = (int64_t)grid[0] * grid[1];
  if (UNLIKELY(__builtin_mul_overflow(programs, (int64_t)grid[2], &programs))) {
    PyErr_Format(PyExc_ValueError, "%U: the grid (%d, %d, %d) has more than 2**63 programs", handle->name, grid[0],
                 grid[1], grid[2]);
    return -1;
  }
  if (UNLIKELY(programs == 0)) return 0;
  void *parameters[handle->n_passed + 2];
  for (Py_ssize_t i = 0; i < handle->n_passed; ++i) parameters[i] = &slots[i];
  if (handle->on_cuda) return handle_launch_cuda(handle, stream, arguments, grid, slots, parameters);
  CpuKernel kernel;
  memcpy(&kernel, &handle->function, sizeof kernel);
  int32_t threads = cpu_threads(programs);
  Py_BEGIN_ALLOW_THREADS;
  kernel(grid[0], grid[1], grid[2], threads, parameters);
  Py_END_ALLOW_THREADS;
  if (LIKELY(handle->after_launch == Py_None)) return 0;
  PyObject *result = PyObject_CallNoArgs(handle->after_launch);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

/* One axis of a grid: an int from 0 to 2**31 - 1. Returns 0, or -1 with an exception. */
static inline int read_grid_axis(PyObject *name, PyObject *value, int axis, int32_t *out) {
  int overflow;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (UNLIKELY(number == -1 && PyErr_Occurred())) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "%U: axis %d of the grid must be an int, got a %s", name, axis,
                   Py_TYPE(value)->tp_name);
    return -1;
  }
  if (UNLIKELY(overflow || number < 0 || number > INT32_MAX)) {
    PyErr_Format(PyExc_ValueError, "%U: axis %d of the grid must be from 0 to 2147483647, got %R", name, axis, value);
    return -1;
  }
  *out = (int32_t)number;
  return 0;
}

/* Calls the Python function that calls launch hooks around handle.launch(*arguments). */
static PyObject *launch_with_hooks(Handle *handle, PyObject *const *arguments, Py_ssize_t n) {
  PyObject *values[n + 1];
  values[0] = (PyObject *)handle;
  memcpy(values + 1, arguments, n * sizeof *arguments);
  return PyObject_Vectorcall(torch_access.with_hooks, values, n + 1, NULL);
}

static PyObject *launch_arguments(Handle *handle, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords,
                                  bool hooks) {
  if (UNLIKELY(n != handle->n_codes + 4 || (keywords && PyTuple_GET_SIZE(keywords)))) {
    PyErr_Format(PyExc_TypeError,
                 "%U: expected a stream, %zd arguments and three grid axes, all positional, got %zd positional and %zd "
                 "keyword arguments",
                 handle->name, handle->n_codes, n, keywords ? PyTuple_GET_SIZE(keywords) : 0);
    return NULL;
  }
  Slot slots[handle->n_passed + 2];
  Py_ssize_t passed = 0;
  PyObject *const *values = arguments + 1;
  for (Py_ssize_t i = 0; i < handle->n_codes; ++i) {
    Packed outcome = pack(handle->codes[i], values[i], &slots[passed]);
    if (LIKELY(outcome == PACKED)) {
      ++passed;
    } else if (outcome == GUARD_FAILED) {
      if (handle->fallback != Py_None) return PyObject_Vectorcall(handle->fallback, arguments, n, NULL);
      raise_guard_error(handle, i, values[i]);
      return NULL;
    } else if (outcome == PACK_ERROR) {
      if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        raise_guard_error(handle, i, values[i]);
      }
      return NULL;
    }
  }
  if (hooks && handle->describe != Py_None) {
    int quiet = hooks_check();
    if (UNLIKELY(quiet != 1)) return quiet < 0 ? NULL : launch_with_hooks(handle, arguments, n);
  }
  int32_t grid[3];
  for (int axis = 0; axis < 3; ++axis)
    if (UNLIKELY(read_grid_axis(handle->name, arguments[n - 3 + axis], axis, &grid[axis]) < 0)) return NULL;
  void *stream = NULL;
  if (handle->on_cuda && arguments[0] != Py_None) {
    stream = PyLong_AsVoidPtr(arguments[0]);
    if (UNLIKELY(stream == NULL && PyErr_Occurred())) return NULL;
  }
  if (UNLIKELY(handle_launch(handle, stream, values, grid, slots) < 0)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *handle_call(PyObject *self, PyObject *const *arguments, size_t nargsf, PyObject *keywords) {
  return launch_arguments((Handle *)self, arguments, PyVectorcall_NARGS(nargsf), keywords, true);
}

/* launch(stream, *arguments, grid0, grid1, grid2): the call without launch hooks. */
static PyObject *handle_launch_quietly(PyObject *self, PyObject *const *arguments, Py_ssize_t n) {
  return launch_arguments((Handle *)self, arguments, n, NULL, false);
}

/* (bytes per program, alignment, allocate) or None. */
static int parse_scratch(PyObject *description, Scratch *scratch) {
  if (description == Py_None) return 0;
  long long bytes, alignment;
  PyObject *allocate;
  if (!PyTuple_Check(description)) {
    PyErr_Format(PyExc_TypeError, "scratch must be (bytes per program, alignment, allocate) or None, got %R", description);
    return -1;
  }
  if (!PyArg_ParseTuple(description, "LLO:scratch", &bytes, &alignment, &allocate)) return -1;
  if (bytes <= 0) return 0;
  scratch->bytes_per_program = bytes;
  scratch->alignment = alignment;
  scratch->allocate = Py_NewRef(allocate);
  return 0;
}

static PyObject *handle_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"kind",        "function", "codes",    "name",           "argument_names", "fallback",
                             "owner",       "threads",  "shared",   "num_ctas",       "cooperative",    "dependent",
                             "device",      "libcuda",  "global_scratch", "profile_scratch", "after_launch",   "describe", NULL};
  const char *kind, *codes, *libcuda = NULL;
  unsigned long long function;
  PyObject *name, *argument_names, *fallback = Py_None, *owner = Py_None;
  PyObject *global_scratch = Py_None, *profile_scratch = Py_None, *after_launch = Py_None, *describe = Py_None;
  int threads = 128, shared = 0, ctas = 1, cooperative = 0, dependent = 0, device = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sKsUO!|$OOiiippizOOOO:Handle", keywords, &kind, &function, &codes, &name,
                                   &PyTuple_Type, &argument_names, &fallback, &owner, &threads, &shared, &ctas,
                                   &cooperative, &dependent, &device, &libcuda, &global_scratch, &profile_scratch,
                                   &after_launch, &describe))
    return NULL;
  bool on_cuda = strcmp(kind, "cuda") == 0;
  if (!on_cuda && strcmp(kind, "cpu") != 0) {
    PyErr_Format(PyExc_ValueError, "kind must be 'cpu' or 'cuda', got '%s'", kind);
    return NULL;
  }
  if (!function) {
    PyErr_Format(PyExc_ValueError, "%U: the address of the compiled function is 0", name);
    return NULL;
  }
  size_t n_codes = strlen(codes);
  if (n_codes > MAX_ARGUMENTS || PyTuple_GET_SIZE(argument_names) != (Py_ssize_t)n_codes) {
    PyErr_Format(PyExc_ValueError, "%U: %zd argument names for %zd codes (at most %d)", name,
                 PyTuple_GET_SIZE(argument_names), (Py_ssize_t)n_codes, MAX_ARGUMENTS);
    return NULL;
  }
  Py_ssize_t passed = 0;
  for (size_t i = 0; i < n_codes; ++i) {
    if (!code_is_known(codes[i])) {
      PyErr_Format(PyExc_ValueError, "%U: unknown argument code '%c' in '%s'", name, codes[i], codes);
      return NULL;
    }
    passed += code_is_passed(codes[i]);
  }
  Handle *handle = (Handle *)type->tp_alloc(type, 0);
  if (!handle) return NULL;
  handle->vectorcall = handle_call;
  handle->on_cuda = on_cuda;
  handle->function = (void *)(uintptr_t)function;
  handle->n_codes = (Py_ssize_t)n_codes;
  handle->n_passed = passed;
  handle->name = Py_NewRef(name);
  handle->argument_names = Py_NewRef(argument_names);
  handle->fallback = Py_NewRef(fallback);
  handle->owner = Py_NewRef(owner);
  handle->after_launch = Py_NewRef(after_launch);
  handle->describe = Py_NewRef(describe);
  handle->codes = PyMem_Malloc(n_codes + 1);
  if (!handle->codes) {
    PyErr_NoMemory();
    goto failed;
  }
  memcpy(handle->codes, codes, n_codes + 1);
  if (parse_scratch(global_scratch, &handle->scratch[0]) < 0) goto failed;
  if (parse_scratch(profile_scratch, &handle->scratch[1]) < 0) goto failed;
  if (on_cuda) {
    if (cuda_open(libcuda) < 0) goto failed;
    if (cuda_prepare(&handle->cuda, handle->function, device, threads, shared, ctas, cooperative, dependent) < 0)
      goto failed;
  }
  return (PyObject *)handle;
failed:
  Py_DECREF(handle);
  return NULL;
}

static int handle_traverse(PyObject *self, visitproc visit, void *arg) {
  Handle *handle = (Handle *)self;
  Py_VISIT(handle->argument_names);
  Py_VISIT(handle->fallback);
  Py_VISIT(handle->owner);
  Py_VISIT(handle->after_launch);
  Py_VISIT(handle->describe);
  Py_VISIT(handle->scratch[0].allocate);
  Py_VISIT(handle->scratch[1].allocate);
  return 0;
}

static int handle_clear(PyObject *self) {
  Handle *handle = (Handle *)self;
  Py_CLEAR(handle->argument_names);
  Py_CLEAR(handle->fallback);
  Py_CLEAR(handle->owner);
  Py_CLEAR(handle->after_launch);
  Py_CLEAR(handle->describe);
  Py_CLEAR(handle->scratch[0].allocate);
  Py_CLEAR(handle->scratch[1].allocate);
  return 0;
}

static void handle_dealloc(PyObject *self) {
  Handle *handle = (Handle *)self;
  PyObject_GC_UnTrack(self);
  handle_clear(self);
  Py_XDECREF(handle->name);
  PyMem_Free(handle->codes);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *handle_repr(PyObject *self) {
  Handle *handle = (Handle *)self;
  return PyUnicode_FromFormat("<Handle of %s kernel %U, codes '%s'>", handle->on_cuda ? "cuda" : "cpu", handle->name,
                              handle->codes);
}

static PyObject *handle_kind(PyObject *self, void *closure) {
  return PyUnicode_FromString(((Handle *)self)->on_cuda ? "cuda" : "cpu");
}

static PyObject *handle_codes(PyObject *self, void *closure) { return PyUnicode_FromString(((Handle *)self)->codes); }

static PyObject *handle_function(PyObject *self, void *closure) {
  return PyLong_FromVoidPtr(((Handle *)self)->function);
}

static PyObject *handle_threads(PyObject *self, void *closure) {
  return PyLong_FromUnsignedLong(((Handle *)self)->cuda.threads);
}

static PyObject *handle_shared(PyObject *self, void *closure) {
  return PyLong_FromUnsignedLong(((Handle *)self)->cuda.shared_bytes);
}

static PyObject *handle_ctas(PyObject *self, void *closure) {
  return PyLong_FromUnsignedLong(((Handle *)self)->cuda.ctas);
}

static PyGetSetDef handle_getset[] = {
    {"kind", handle_kind, NULL, "\"cpu\" or \"cuda\"", NULL},
    {"codes", handle_codes, NULL, "how each argument is passed, one character each", NULL},
    {"function", handle_function, NULL, "the address of the compiled function", NULL},
    {"threads", handle_threads, NULL, "threads of a block (CUDA)", NULL},
    {"shared", handle_shared, NULL, "bytes of dynamic shared memory (CUDA)", NULL},
    {"num_ctas", handle_ctas, NULL, "blocks of a cluster (CUDA)", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef handle_members[] = {
    {"name", T_OBJECT, offsetof(Handle, name), READONLY, "the kernel's name"},
    {"argument_names", T_OBJECT, offsetof(Handle, argument_names), READONLY, "one name for each code"},
    {"fallback", T_OBJECT, offsetof(Handle, fallback), READONLY, "called when a guard fails"},
    {"describe", T_OBJECT, offsetof(Handle, describe), READONLY, "makes what launch hooks receive"},
    {"owner", T_OBJECT, offsetof(Handle, owner), READONLY, "kept alive as long as the handle"},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef handle_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))handle_launch_quietly, METH_FASTCALL,
     "launch(stream, *arguments, grid0, grid1, grid2): the call without launch hooks."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Handle_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "opgraft.jit.native.Handle",
    .tp_doc = "One compiled kernel: handle(stream, *arguments, grid0, grid1, grid2).",
    .tp_basicsize = sizeof(Handle),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = handle_new,
    .tp_dealloc = handle_dealloc,
    .tp_traverse = handle_traverse,
    .tp_clear = handle_clear,
    .tp_vectorcall_offset = offsetof(Handle, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = handle_repr,
    .tp_getset = handle_getset,
    .tp_methods = handle_methods,
    .tp_members = handle_members,
};
