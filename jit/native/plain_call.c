/* PlainCall: the body of an op, called without torch's dispatcher when nothing in torch would do more than call it.
 *
 * The dispatcher costs an eager call several microseconds, most of them for boxing arguments on the way to Python and
 * back. It is needed for derivatives, torch.func, modes, profilers and new kinds of arguments, and gets those calls.
 */
#include "launch.h"

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *function;     /* the body */
  PyObject *dispatched;   /* the op */
  PyObject *seen;         /* set of tuples, for each argument a tensor's dtype or a type */
  uint64_t *known;        /* keys of calls that were found there: n, then a word for each argument */
  Py_ssize_t n_known, room; /* in words */
  PyObject *written;      /* tuple of the positions of arguments that the body writes */
  PyObject *check_write;  /* called with each of these before, and raises where it may not be written */
  PyObject *count_write;  /* called with each of these afterwards */
  PyObject *function_modes, *profiling, *grad_enabled; /* asked where torch's own functions are not known */
  PyObject *forward_ad;   /* dict; its `_current_level` is -1 outside of forward-mode differentiation */
  PyObject *simple;       /* set of types whose values say nothing that the body's graph depends on */
} PlainCall;

static PyTypeObject PlainCall_Type;

static PyObject *name_requires_grad, *name_dtype, *name_current_level;
static PyObject *name_is_neg, *name_is_conj, *name_is_zerotensor;

/* Whether calling gives something true; -1 with an exception. */
static int answer(PyObject *function) {
  PyObject *result = PyObject_CallNoArgs(function);
  if (!result) return -1;
  int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  return truth;
}

static int attribute(PyObject *object, PyObject *name) {
  PyObject *result = PyObject_GetAttr(object, name);
  if (!result) return -1;
  int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  return truth;
}

/* Words that a key has room for: more arguments than any op has. */
enum { MAX_KEY = 256, MAX_KNOWN = 4096 };

static int somebody_looks(const PlainCall *self) {
  if (UNLIKELY(torch_intercepts())) return 1;
  int looks = LIKELY(torch_access.count_function_modes != NULL) ? torch_access.count_function_modes() != 0
                                                                : answer(self->function_modes);
  if (UNLIKELY(looks != 0)) return looks;
  looks = LIKELY(torch_access.profiler_enabled != NULL) ? torch_access.profiler_enabled() : answer(self->profiling);
  if (UNLIKELY(looks != 0)) return looks;
  PyObject *level = PyDict_GetItemWithError(self->forward_ad, name_current_level);
  if (UNLIKELY(!level)) return PyErr_Occurred() ? -1 : 1;
  long number = PyLong_AsLong(level);
  if (UNLIKELY(number == -1 && PyErr_Occurred())) return -1;
  return number != -1;
}

static inline int requires_grad(PyObject *tensor) {
  void *inner = torch_access.requires_grad ? inner_tensor(tensor) : NULL;
  /* An at::Tensor is one pointer, to its TensorImpl. */
  return LIKELY(inner != NULL) ? torch_access.requires_grad(*(void **)inner) : attribute(tensor, name_requires_grad);
}

static inline int method_says(bool (*function)(const void *), PyObject *tensor, PyObject *name) {
  void *inner = function ? inner_tensor(tensor) : NULL;
  if (LIKELY(inner != NULL)) return function(inner);
  PyObject *method = PyObject_GetAttr(tensor, name);
  if (!method) return -1;
  int truth = answer(method);
  Py_DECREF(method);
  return truth;
}

/* Whether the tensor's memory does not hold its values, which the dispatcher would put right; -1 with an exception. */
static inline int stands_for_others(PyObject *tensor) {
  int stands = method_says(torch_access.is_neg, tensor, name_is_neg);
  if (LIKELY(stands == 0)) stands = method_says(torch_access.is_conj, tensor, name_is_conj);
  if (LIKELY(stands == 0)) stands = method_says(torch_access.is_zerotensor, tensor, name_is_zerotensor);
  return stands;
}

/* Whether a key was found in `seen` before. */
static bool is_known(const PlainCall *self, const uint64_t *key, Py_ssize_t n) {
  for (Py_ssize_t at = 0; at < self->n_known; at += 1 + (Py_ssize_t)self->known[at])
    if ((Py_ssize_t)self->known[at] == n && memcmp(self->known + at + 1, key, n * sizeof *key) == 0) return true;
  return false;
}

#ifndef Py_GIL_DISABLED
static void make_known(PlainCall *self, const uint64_t *key, Py_ssize_t n) {
  if (self->n_known + 1 + n > self->room) {
    Py_ssize_t room = self->room ? 2 * self->room : 32;
    uint64_t *grown = room <= MAX_KNOWN && room >= self->n_known + 1 + n
                          ? PyMem_Realloc(self->known, room * sizeof *grown)
                          : NULL;
    if (!grown) return; /* it is looked up in `seen` every time */
    self->known = grown;
    self->room = room;
  }
  self->known[self->n_known] = (uint64_t)n;
  memcpy(self->known + self->n_known + 1, key, n * sizeof *key);
  self->n_known += 1 + n;
}
#else
static void make_known(PlainCall *self, const uint64_t *key, Py_ssize_t n) {} /* no lock: looked up every time */
#endif

/* As is_plain, for a call whose arguments are all right: whether its kinds were seen. */
static int was_seen(PlainCall *self, PyObject *const *arguments, Py_ssize_t n) {
  PyObject *kinds = PyTuple_New(n);
  if (!kinds) return -1;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *kind = is_plain_tensor(arguments[i]) ? PyObject_GetAttr(arguments[i], name_dtype)
                                                   : Py_NewRef((PyObject *)Py_TYPE(arguments[i]));
    if (!kind) {
      Py_DECREF(kinds);
      return -1;
    }
    PyTuple_SET_ITEM(kinds, i, kind);
  }
  int seen = PySet_Contains(self->seen, kinds);
  Py_DECREF(kinds);
  return seen;
}

/* 1: such a call was seen before and needs no derivative. 0: the dispatcher is needed. -1: an exception. */
static int is_plain(PlainCall *self, PyObject *const *arguments, Py_ssize_t n) {
  int looks = somebody_looks(self);
  if (UNLIKELY(looks != 0)) return looks < 0 ? -1 : 0;
  int grad = LIKELY(torch_access.grad_enabled != NULL) ? torch_access.grad_enabled() : answer(self->grad_enabled);
  if (UNLIKELY(grad < 0)) return -1;
  if (UNLIKELY(n > MAX_KEY)) return 0;
  uint64_t key[n + 1];
  bool keyed = true;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *value = arguments[i];
    if (LIKELY(is_plain_tensor(value))) {
      int needed = grad ? requires_grad(value) : 0;
      if (LIKELY(needed == 0)) needed = stands_for_others(value);
      if (UNLIKELY(needed != 0)) return needed < 0 ? -1 : 0;
      void *inner = inner_tensor(value);
      int32_t dtype;
      if (LIKELY(inner && torch_access.get_dtype(inner, &dtype) == 0)) key[i] = (uint32_t)dtype;
      else keyed = false;
    } else {
      key[i] = (uintptr_t)Py_TYPE(value); /* an address, so never a dtype's number */
    }
  }
  if (LIKELY(keyed && is_known(self, key, n))) return 1;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (is_plain_tensor(arguments[i])) continue;
    int simple = PySet_Contains(self->simple, (PyObject *)Py_TYPE(arguments[i]));
    if (simple != 1) return simple;
  }
  int seen = was_seen(self, arguments, n);
  if (seen == 1 && keyed) make_known(self, key, n);
  return seen;
}

/* Calls `function` with each argument that the body writes. */
static int call_for_written(const PlainCall *self, PyObject *function, PyObject *const *arguments, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->written); ++i) {
    Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->written, i));
    if (position >= n) continue; /* left at its default */
    PyObject *done = PyObject_CallOneArg(function, arguments[position]);
    if (!done) return -1;
    Py_DECREF(done);
  }
  return 0;
}

static PyObject *plain_call(PyObject *object, PyObject *const *arguments, size_t nargsf, PyObject *keywords) {
  PlainCall *self = (PlainCall *)object;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  int plain = keywords && PyTuple_GET_SIZE(keywords) ? 0 : is_plain(self, arguments, n);
  if (UNLIKELY(plain < 0)) return NULL;
  if (UNLIKELY(!plain)) return PyObject_Vectorcall(self->dispatched, arguments, nargsf, keywords);
  if (UNLIKELY(PyTuple_GET_SIZE(self->written) && call_for_written(self, self->check_write, arguments, n) < 0))
    return NULL;
  PyObject *result = PyObject_Vectorcall(self->function, arguments, nargsf, NULL);
  if (UNLIKELY(result && PyTuple_GET_SIZE(self->written) &&
               call_for_written(self, self->count_write, arguments, n) < 0))
    Py_CLEAR(result);
  return result;
}

static PyObject *plain_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"function",  "dispatched",   "seen",       "written", "check_write", "count_write",
                             "function_modes", "profiling", "grad_enabled", "forward_ad", "simple", NULL};
  PyObject *function, *dispatched, *seen, *written, *check_write, *count_write;
  PyObject *function_modes, *profiling, *grad_enabled, *forward_ad, *simple;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!O!OOOOOO!O:PlainCall", keywords, &function, &dispatched,
                                   &PySet_Type, &seen, &PyTuple_Type, &written, &check_write, &count_write,
                                   &function_modes, &profiling, &grad_enabled, &PyDict_Type, &forward_ad, &simple))
    return NULL;
  if (!PyAnySet_Check(simple)) {
    PyErr_Format(PyExc_TypeError, "simple: expected a set of types, got %R", simple);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(written); ++i) {
    Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(written, i));
    if (position < 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "written: a position is negative");
      return NULL;
    }
  }
  PlainCall *self = (PlainCall *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = plain_call;
  self->function = Py_NewRef(function);
  self->dispatched = Py_NewRef(dispatched);
  self->seen = Py_NewRef(seen);
  self->written = Py_NewRef(written);
  self->check_write = Py_NewRef(check_write);
  self->count_write = Py_NewRef(count_write);
  self->function_modes = Py_NewRef(function_modes);
  self->profiling = Py_NewRef(profiling);
  self->grad_enabled = Py_NewRef(grad_enabled);
  self->forward_ad = Py_NewRef(forward_ad);
  self->simple = Py_NewRef(simple);
  return (PyObject *)self;
}

static int plain_call_traverse(PyObject *object, visitproc visit, void *arg) {
  PlainCall *self = (PlainCall *)object;
  Py_VISIT(self->function);
  Py_VISIT(self->dispatched);
  Py_VISIT(self->seen);
  Py_VISIT(self->written);
  Py_VISIT(self->check_write);
  Py_VISIT(self->count_write);
  Py_VISIT(self->function_modes);
  Py_VISIT(self->profiling);
  Py_VISIT(self->grad_enabled);
  Py_VISIT(self->forward_ad);
  Py_VISIT(self->simple);
  return 0;
}

/* Nothing is cleared, so that an object is always whole: cycles go through other objects. */
static void plain_call_dealloc(PyObject *object) {
  PlainCall *self = (PlainCall *)object;
  PyObject_GC_UnTrack(object);
  Py_DECREF(self->function);
  Py_DECREF(self->dispatched);
  Py_DECREF(self->seen);
  Py_DECREF(self->written);
  Py_DECREF(self->check_write);
  Py_DECREF(self->count_write);
  Py_DECREF(self->function_modes);
  Py_DECREF(self->profiling);
  PyMem_Free(self->known);
  Py_DECREF(self->grad_enabled);
  Py_DECREF(self->forward_ad);
  Py_DECREF(self->simple);
  Py_TYPE(object)->tp_free(object);
}

static PyTypeObject PlainCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "opgraft.jit.native.PlainCall",
    .tp_doc = "The body of an op, called without the dispatcher where that makes no difference.",
    .tp_basicsize = sizeof(PlainCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = plain_call_new,
    .tp_dealloc = plain_call_dealloc,
    .tp_traverse = plain_call_traverse,
    .tp_vectorcall_offset = offsetof(PlainCall, vectorcall),
    .tp_call = PyVectorcall_Call,
};
