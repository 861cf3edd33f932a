/* The module: its types, and `configure`, which build.py calls once after loading it. */
#include "launch.h"

static int replace(PyObject **target, PyObject *value) {
  PyObject *old = *target;
  *target = Py_NewRef(value);
  Py_XDECREF(old);
  return 0;
}

static PyObject *configure(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"tensor_type",      "parameter_type",  "tensor_offset",   "get_data_ptr", "get_dtype",
                             "get_device_type",  "get_device_index", "get_num_threads", "get_cuda_stream",
                             "count_modes",      "key_included",    "functorch_key",   "count_function_modes",
                             "profiler_enabled", "grad_enabled",    "requires_grad",   "is_neg",
                             "is_conj",          "is_zerotensor",   NULL};
  PyTypeObject *tensor_type, *parameter_type;
  Py_ssize_t offset;
  unsigned long long data_ptr, dtype, device_type, device_index, num_threads, cuda_stream, count_modes, key_included,
      count_function_modes, profiler_enabled, grad_enabled, requires_grad, is_neg, is_conj, is_zerotensor;
  unsigned short functorch_key;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!O!nKKKKKKKKHKKKKKKK:configure", keywords, &PyType_Type, &tensor_type,
                                   &PyType_Type, &parameter_type, &offset, &data_ptr, &dtype, &device_type,
                                   &device_index, &num_threads, &cuda_stream, &count_modes, &key_included,
                                   &functorch_key, &count_function_modes, &profiler_enabled, &grad_enabled,
                                   &requires_grad, &is_neg, &is_conj, &is_zerotensor))
    return NULL;
  replace((PyObject **)&torch_access.tensor_type, (PyObject *)tensor_type);
  replace((PyObject **)&torch_access.parameter_type, (PyObject *)parameter_type);
  torch_access.get_data_ptr = (int32_t(*)(void *, void **))(uintptr_t)data_ptr;
  torch_access.get_dtype = (int32_t(*)(void *, int32_t *))(uintptr_t)dtype;
  torch_access.get_device_type = (int32_t(*)(void *, int32_t *))(uintptr_t)device_type;
  torch_access.get_device_index = (int32_t(*)(void *, int32_t *))(uintptr_t)device_index;
  torch_access.get_num_threads = (int (*)(void))(uintptr_t)num_threads;
  torch_access.get_cuda_stream = (int32_t(*)(int32_t, void **))(uintptr_t)cuda_stream;
  torch_access.key_included = (bool (*)(uint16_t))(uintptr_t)key_included;
  torch_access.functorch_key = functorch_key;
  torch_access.count_function_modes = (int64_t(*)(void))(uintptr_t)count_function_modes;
  torch_access.profiler_enabled = (bool (*)(void))(uintptr_t)profiler_enabled;
  torch_access.grad_enabled = (bool (*)(void))(uintptr_t)grad_enabled;
  torch_access.requires_grad = (bool (*)(const void *))(uintptr_t)requires_grad;
  torch_access.is_neg = (bool (*)(const void *))(uintptr_t)is_neg;
  torch_access.is_conj = (bool (*)(const void *))(uintptr_t)is_conj;
  torch_access.is_zerotensor = (bool (*)(const void *))(uintptr_t)is_zerotensor;
  /* Without the other question this one is no use. */
  torch_access.count_modes = key_included ? (int64_t(*)(void))(uintptr_t)count_modes : NULL;
  torch_access.tensor_offset = offset;
  Py_RETURN_NONE;
}

static PyObject *set_functions(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"cuda_error", "guard_error", "resolve_grid", "with_hooks", NULL};
  PyObject *cuda_error, *guard_error, *resolve_grid, *with_hooks;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOO:set_functions", keywords, &cuda_error, &guard_error,
                                   &resolve_grid, &with_hooks))
    return NULL;
  replace(&torch_access.cuda_error, cuda_error);
  replace(&torch_access.guard_error, guard_error);
  replace(&torch_access.resolve_grid, resolve_grid);
  replace(&torch_access.with_hooks, with_hooks);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "How tensors are read: torch's types, the offset of the C++ tensor, addresses of torch's C functions (0: none)."},
    {"set_functions", (PyCFunction)(void (*)(void))set_functions, METH_VARARGS | METH_KEYWORDS,
     "The functions in Python that word errors, resolve grids and call launch hooks."},
    {"environment_set", environment_set, METH_O,
     "environment_set(watches): what every remembered launch expects from now on. Launches remembered before are void."},
    {"no_hooks_set", no_hooks_set, METH_O, "no_hooks_set(watches): while they hold, no launch hook is set."},
    {"environment_holds", environment_holds, METH_NOARGS, "Whether everything is as environment_set was told."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
  struct {
    PyObject **target;
    const char *text;
  } names[] = {{&name_data_ptr, "data_ptr"}, {&name_run, "run"}, {&name_grid, "grid"}, {&name_warmup, "warmup"},
               {&name_requires_grad, "requires_grad"}, {&name_dtype, "dtype"}, {&name_current_level, "_current_level"},
               {&name_is_neg, "is_neg"}, {&name_is_conj, "is_conj"}, {&name_is_zerotensor, "_is_zerotensor"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (!(*names[i].target = PyUnicode_InternFromString(names[i].text))) return -1;
  if (!(missing = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type))) return -1;
  if (PyModule_AddObjectRef(module, "MISSING", missing) < 0) return -1;
  if (cpu_watch_forks() < 0) {
    PyErr_SetString(PyExc_RuntimeError, "pthread_atfork failed");
    return -1;
  }
  if (PyModule_AddType(module, &Launcher_Type) < 0) return -1;
  if (PyModule_AddType(module, &Dispatcher_Type) < 0) return -1;
  if (PyModule_AddType(module, &PlainCall_Type) < 0) return -1;
  return PyModule_AddType(module, &Handle_Type);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "opgraft_launch",
    .m_doc = "Launching compiled kernels from C (opgraft.jit.native).",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_opgraft_launch(void) { return PyModuleDef_Init(&definition); }
