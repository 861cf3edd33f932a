/* The module: its types, and `configure`, which build.py calls once after loading it. */
#include "launch.h"

static int replace(PyObject **target, PyObject *value) {
  PyObject *old = *target;
  *target = Py_NewRef(value);
  Py_XDECREF(old);
  return 0;
}

static PyObject *configure(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"tensor_type", "parameter_type",  "tensor_offset", "get_data_ptr", "get_dtype",
                             "get_device_type", "get_device_index", "get_num_threads", NULL};
  PyTypeObject *tensor_type, *parameter_type;
  Py_ssize_t offset;
  unsigned long long data_ptr, dtype, device_type, device_index, num_threads;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!O!nKKKKK:configure", keywords, &PyType_Type, &tensor_type,
                                   &PyType_Type, &parameter_type, &offset, &data_ptr, &dtype, &device_type,
                                   &device_index, &num_threads))
    return NULL;
  replace((PyObject **)&torch_access.tensor_type, (PyObject *)tensor_type);
  replace((PyObject **)&torch_access.parameter_type, (PyObject *)parameter_type);
  torch_access.get_data_ptr = (int32_t(*)(void *, void **))(uintptr_t)data_ptr;
  torch_access.get_dtype = (int32_t(*)(void *, int32_t *))(uintptr_t)dtype;
  torch_access.get_device_type = (int32_t(*)(void *, int32_t *))(uintptr_t)device_type;
  torch_access.get_device_index = (int32_t(*)(void *, int32_t *))(uintptr_t)device_index;
  torch_access.get_num_threads = (int (*)(void))(uintptr_t)num_threads;
  torch_access.tensor_offset = offset;
  Py_RETURN_NONE;
}

static PyObject *set_errors(PyObject *module, PyObject *args) {
  PyObject *cuda_error, *guard_error;
  if (!PyArg_ParseTuple(args, "OO:set_errors", &cuda_error, &guard_error)) return NULL;
  replace(&torch_access.cuda_error, cuda_error);
  replace(&torch_access.guard_error, guard_error);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "How tensors are read: torch's types, the offset of the C++ tensor, addresses of torch's C functions (0: none)."},
    {"set_errors", set_errors, METH_VARARGS, "The functions that make the exceptions of a failed launch or guard."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
  name_data_ptr = PyUnicode_InternFromString("data_ptr");
  if (!name_data_ptr) return -1;
  if (cpu_watch_forks() < 0) {
    PyErr_SetString(PyExc_RuntimeError, "pthread_atfork failed");
    return -1;
  }
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
