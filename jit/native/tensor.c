/* Reading tensors without torch's headers.
 *
 * A torch.Tensor or Parameter holds an at::Tensor inside the Python object. Its offset is found and checked at start-up
 * (compat.py); from there on torch's C shim (aoti_torch_get_*, a stable ABI) answers in a few nanoseconds. Where the
 * offset is not known, and for every other type, the Python methods are called.
 */
#include "launch.h"

static inline bool is_plain_tensor(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return type == torch_access.tensor_type || type == torch_access.parameter_type;
}

/* The at::Tensor inside a plain tensor, or NULL when it has to be asked through Python. */
static inline void *inner_tensor(PyObject *object) {
  if (LIKELY(torch_access.tensor_offset != 0 && is_plain_tensor(object)))
    return (char *)object + torch_access.tensor_offset;
  return NULL;
}

static int pointer_by_method(PyObject *object, uint64_t *pointer) {
  PyObject *self[1] = {object};
  PyObject *result = PyObject_VectorcallMethod(name_data_ptr, self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  if (!result) return -1;
  if (!PyLong_Check(result)) {
    PyErr_Format(PyExc_TypeError, "data_ptr() of a %s returned a %s, expected an int", Py_TYPE(object)->tp_name,
                 Py_TYPE(result)->tp_name);
    Py_DECREF(result);
    return -1;
  }
  *pointer = PyLong_AsUnsignedLongLong(result);
  Py_DECREF(result);
  return PyErr_Occurred() ? -1 : 0;
}

/* The address a pointer parameter gets: of a tensor or of anything with data_ptr(), an int as it is, 0 for None. */
static inline int read_pointer(PyObject *object, uint64_t *pointer) {
  void *tensor = inner_tensor(object);
  if (LIKELY(tensor != NULL)) {
    void *address;
    if (LIKELY(torch_access.get_data_ptr(tensor, &address) == 0)) {
      *pointer = (uint64_t)(uintptr_t)address;
      return 0;
    }
    return pointer_by_method(object, pointer); /* it has no storage: the method says why */
  }
  if (object == Py_None) {
    *pointer = 0;
    return 0;
  }
  if (PyLong_Check(object)) {
    *pointer = PyLong_AsUnsignedLongLong(object);
    return PyErr_Occurred() ? -1 : 0;
  }
  return pointer_by_method(object, pointer);
}
