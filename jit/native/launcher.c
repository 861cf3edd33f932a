/* Launcher: a kernel with its grid, what `kernel[grid]` gives; calling it launches. */
#include "launch.h"

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Dispatcher *dispatcher;
  PyObject *grid;
} Launcher;

static PyTypeObject Launcher_Type;

static PyObject *name_run, *name_grid, *name_warmup;

/* kernel.run(*arguments, grid=grid, warmup=False, **keywords) */
static PyObject *launch_in_python(Launcher *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords) {
  Py_ssize_t n_keywords = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  if (!self->dispatcher->kernel) {
    PyErr_SetString(PyExc_ReferenceError, "the kernel of this launcher is gone");
    return NULL;
  }
  PyObject *run = PyObject_GetAttr(self->dispatcher->kernel, name_run);
  if (!run) return NULL;
  PyObject *result = NULL;
  PyObject *names = PyTuple_New(n_keywords + 2);
  PyObject **values = PyMem_Malloc((n + n_keywords + 2) * sizeof *values);
  if (names && values) {
    for (Py_ssize_t i = 0; i < n + n_keywords; ++i) values[i] = arguments[i];
    for (Py_ssize_t i = 0; i < n_keywords; ++i) PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(keywords, i)));
    PyTuple_SET_ITEM(names, n_keywords, Py_NewRef(name_grid));
    PyTuple_SET_ITEM(names, n_keywords + 1, Py_NewRef(name_warmup));
    values[n + n_keywords] = self->grid;
    values[n + n_keywords + 1] = Py_False;
    result = PyObject_Vectorcall(run, values, n, names);
  } else if (names) {
    PyErr_NoMemory();
  }
  PyMem_Free(values);
  Py_XDECREF(names);
  Py_DECREF(run);
  return result;
}

static PyObject *launcher_call(PyObject *object, PyObject *const *arguments, size_t nargsf, PyObject *keywords) {
  Launcher *self = (Launcher *)object;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  bool miss;
  PyObject *result = dispatch(self->dispatcher, self->grid, arguments, n, keywords, &miss);
  if (LIKELY(result != NULL) || !miss) return result;
  return launch_in_python(self, arguments, n, keywords);
}

/* at(grid) -> Launcher */
static PyObject *dispatcher_at(PyObject *dispatcher, PyObject *grid) {
  Launcher *self = PyObject_GC_New(Launcher, &Launcher_Type);
  if (!self) return NULL;
  self->vectorcall = launcher_call;
  self->dispatcher = (Dispatcher *)Py_NewRef(dispatcher);
  self->grid = Py_NewRef(grid);
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg) {
  Launcher *self = (Launcher *)object;
  Py_VISIT(self->dispatcher);
  Py_VISIT(self->grid);
  return 0;
}

/* The two references are never cleared, so that a launcher is always whole: cycles go through other objects. */
static void launcher_dealloc(PyObject *object) {
  Launcher *self = (Launcher *)object;
  PyObject_GC_UnTrack(object);
  Py_DECREF(self->dispatcher);
  Py_DECREF(self->grid);
  PyObject_GC_Del(object);
}

static PyObject *launcher_repr(PyObject *object) {
  Launcher *self = (Launcher *)object;
  PyObject *kernel = self->dispatcher->kernel;
  return PyUnicode_FromFormat("%R[%S]", kernel ? kernel : Py_None, self->grid);
}

static PyObject *launcher_kernel(PyObject *object, void *closure) {
  PyObject *kernel = ((Launcher *)object)->dispatcher->kernel;
  return Py_NewRef(kernel ? kernel : Py_None);
}

static PyGetSetDef launcher_getset[] = {
    {"kernel", launcher_kernel, NULL, "the kernel", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef launcher_members[] = {
    {"grid", T_OBJECT, offsetof(Launcher, grid), READONLY, "the grid, a sequence of ints or a function"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject Launcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "opgraft.jit.native.Launcher",
    .tp_doc = "A kernel with the grid it is launched on.",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_dealloc = launcher_dealloc,
    .tp_traverse = launcher_traverse,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = launcher_repr,
    .tp_getset = launcher_getset,
    .tp_members = launcher_members,
};

static PyMethodDef dispatcher_methods[] = {
    {"at", dispatcher_at, METH_O, "at(grid): the kernel with its grid."},
    {"launch", (PyCFunction)(void (*)(void))dispatcher_launch, METH_FASTCALL,
     "launch(grid, args, kwargs): the compiled kernel that was launched, or NotImplemented when this call has to go "
     "through Python."},
    {"remember", (PyCFunction)(void (*)(void))dispatcher_remember, METH_VARARGS | METH_KEYWORDS,
     "remember(args, kwargs, handle, result, watches, substitutes=None): launch such calls by `handle` from now on, as "
     "long as the watches hold. Returns whether that is new: False when the arguments are of kinds that cannot be "
     "recognized, or when such a launch was remembered before."},
    {"forget", dispatcher_forget, METH_NOARGS, "Forget every launch."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef dispatcher_members[] = {
    {"kernel", T_OBJECT, offsetof(Dispatcher, kernel), READONLY, "the kernel that is launched"},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods dispatcher_sequence = {.sq_length = dispatcher_length};

static PyTypeObject Dispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "opgraft.jit.native.Dispatcher",
    .tp_doc = "The launches of one kernel that were seen before.",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = dispatcher_new,
    .tp_dealloc = dispatcher_dealloc,
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_as_sequence = &dispatcher_sequence,
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
};
