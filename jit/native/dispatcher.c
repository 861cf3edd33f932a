/* Dispatcher: the launches of one kernel that were seen before, found by their arguments alone.
 *
 * `kernel[grid](...)` binds, keys, looks up and launches here. Whatever is unusual or new gives a miss: the caller then
 * goes through `kernel.run`, in Python, which calls `remember` when the launch is one that may be repeated here.
 */
#include "launch.h"

/* A remembered launch. Counted, since Python code that runs in the middle of a launch may forget it. */
typedef struct {
  Py_ssize_t references;
  Watches watches;
  uint64_t generation; /* of the environment */
  Handle *handle;
  PyObject *result;      /* what the launch returns: the compiled kernel */
  PyObject *substitutes; /* dict from parameter name to the value that a grid function sees, or NULL */
  PyObject *kept;        /* list of the objects whose addresses are in the key */
  uint64_t hash;
  Py_ssize_t n_words;
  uint64_t words[];
} Entry;

/* More than that is a kernel whose constants never repeat: start again. */
enum { MAX_ENTRIES = 4096 };

typedef struct {
  PyObject_HEAD
  PyObject *kernel;
  PyObject *name;
  Py_ssize_t n_parameters, n_positional;
  Parameter *parameters;
  Entry **table; /* open addressing, a power of two */
  Py_ssize_t capacity, count;
} Dispatcher;

static PyTypeObject Dispatcher_Type;

/* Without a GIL the table is read and changed under the dispatcher's own lock. */
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

#ifdef Py_GIL_DISABLED
static inline void entry_acquire(Entry *entry) { __atomic_add_fetch(&entry->references, 1, __ATOMIC_RELAXED); }
static inline Py_ssize_t entry_drop(Entry *entry) { return __atomic_sub_fetch(&entry->references, 1, __ATOMIC_ACQ_REL); }
#else
static inline void entry_acquire(Entry *entry) { ++entry->references; }
static inline Py_ssize_t entry_drop(Entry *entry) { return --entry->references; }
#endif

static void entry_release(Entry *entry) {
  if (LIKELY(entry_drop(entry) > 0)) return;
  watches_clear(&entry->watches);
  Py_XDECREF(entry->handle);
  Py_XDECREF(entry->result);
  Py_XDECREF(entry->substitutes);
  Py_XDECREF(entry->kept);
  PyMem_Free(entry);
}

static inline bool has_key(const Entry *entry, const Call *call) {
  return entry->n_words == call->n_words && memcmp(entry->words, call->words, call->n_words * sizeof *call->words) == 0;
}

static inline Entry *find_entry(const Dispatcher *self, const Call *call, uint64_t hash) {
  if (UNLIKELY(!self->count)) return NULL;
  size_t mask = (size_t)self->capacity - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    Entry *entry = self->table[at];
    if (!entry) return NULL;
    if (LIKELY(entry->hash == hash && has_key(entry, call))) return entry;
  }
}

static void forget_all(Dispatcher *self) {
  Entry **table = self->table;
  Py_ssize_t capacity = self->capacity;
  self->table = NULL;
  self->capacity = self->count = 0;
  for (Py_ssize_t i = 0; i < capacity; ++i)
    if (table[i]) entry_release(table[i]);
  PyMem_Free(table);
}

static int grow(Dispatcher *self) {
  Py_ssize_t capacity = self->capacity ? 2 * self->capacity : 8;
  Entry **table = PyMem_Calloc(capacity, sizeof *table);
  if (!table) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < self->capacity; ++i) {
    if (!self->table[i]) continue;
    size_t at = self->table[i]->hash & (capacity - 1);
    while (table[at]) at = (at + 1) & (capacity - 1);
    table[at] = self->table[i];
  }
  PyMem_Free(self->table);
  self->table = table;
  self->capacity = capacity;
  return 0;
}

/* The current stream of the tensors' device. Returns false when torch does not say. */
static inline bool current_stream(const Call *call, void **stream) {
  *stream = NULL;
  if (call->device_type == DEVICE_CPU) return true;
  return torch_access.get_cuda_stream && torch_access.get_cuda_stream(call->device_index, stream) == 0;
}

/* Whether launches may be seen by others: a torch dispatch mode, or a transform of torch.func. Yes where unknown. */
static inline bool torch_intercepts(void) {
  return !torch_access.count_modes || torch_access.count_modes() != 0 ||
         torch_access.key_included(torch_access.functorch_key);
}

/* Fills the slots. False: a value that this kernel was not compiled for, which Python explains. -1 in `*status` when an
 * exception is set. */
static inline bool pack_call(const Handle *handle, const Call *call, Slot *slots, int *status) {
  Py_ssize_t passed = 0;
  for (Py_ssize_t i = 0; i < handle->n_codes; ++i) {
    char code = handle->codes[i];
    switch (code) {
      case 'x':
      case '1':
      case 'N': break;
      case 'A':
        if (UNLIKELY(call->raw[i].u64 & 15)) return false;
        slots[passed++] = call->raw[i];
        break;
      case 'P':
      case 'l': slots[passed++] = call->raw[i]; break;
      case 'f':
      case 'd':
      case 'h':
      case 'g':
        if (UNLIKELY(pack_float(code, call->values[i], &slots[passed++]) != PACKED)) {
          *status = -1;
          return false;
        }
        break;
      case 'u':
      case 'U':
        if (UNLIKELY(call->raw[i].i64 < 0 || (code == 'U' && call->raw[i].u64 & 15))) return false;
        slots[passed++] = call->raw[i];
        break;
      default: {
        const IntegerCode *range = &integer_codes[(unsigned char)code];
        int64_t number = call->raw[i].i64;
        if (UNLIKELY(number < range->low || number > range->high || (number & range->divisor_mask))) return false;
        slots[passed++].i64 = number;
      }
    }
  }
  return true;
}

/* The arguments by name, as a grid function takes them. */
static PyObject *named_arguments(const Dispatcher *self, const Call *call, PyObject *substitutes) {
  PyObject *named = PyDict_New();
  for (Py_ssize_t i = 0; named && i < self->n_parameters; ++i)
    if (PyDict_SetItem(named, self->parameters[i].name, call->values[i]) < 0) Py_CLEAR(named);
  if (named && substitutes && PyDict_Update(named, substitutes) < 0) Py_CLEAR(named);
  return named;
}

static bool simple_grid(PyObject *grid, int32_t sizes[3]) {
  if (!PyTuple_CheckExact(grid)) return false;
  Py_ssize_t axes = PyTuple_GET_SIZE(grid);
  if (axes < 1 || axes > 3) return false;
  sizes[1] = sizes[2] = 1;
  for (Py_ssize_t axis = 0; axis < axes; ++axis) {
    PyObject *size = PyTuple_GET_ITEM(grid, axis);
    if (!PyLong_CheckExact(size)) return false;
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(size, &overflow);
    if (overflow || number < 0 || number > INT32_MAX) return false;
    sizes[axis] = (int32_t)number;
  }
  return true;
}

/* The sizes of what a user gave as grid, or a grid function returned; Python words the errors. */
static int resolve_grid(const Dispatcher *self, PyObject *grid, int32_t sizes[3]) {
  if (LIKELY(simple_grid(grid, sizes))) return 0;
  PyObject *resolved = PyObject_CallFunctionObjArgs(torch_access.resolve_grid, self->name, grid, NULL);
  if (!resolved) return -1;
  bool simple = simple_grid(resolved, sizes);
  Py_DECREF(resolved);
  if (simple) return 0;
  PyErr_Format(PyExc_SystemError, "%U: the resolved grid is not a tuple of ints", self->name);
  return -1;
}

/* Grid functions that run in this thread, one inside the other. A call's frame is large, and Python counts none of it:
 * beyond that many the way through Python is taken, where an endless recursion ends in a RecursionError. */
static __thread int grid_depth;
enum { MAX_GRID_DEPTH = 64 };

/* Launches `entry` for `call`. Returns what the launch returns, NULL with an exception, or NULL with `*miss` set. */
static PyObject *launch_entry(Dispatcher *self, Entry *entry, PyObject *grid, Call *call, bool *miss) {
  int status = environment_check();
  if (LIKELY(status == 1)) status = watches_hold(&entry->watches);
  if (UNLIKELY(status != 1)) {
    *miss = status == 0;
    return NULL;
  }
  Slot slots[entry->handle->n_passed + 2];
  int32_t sizes[3];
  void *stream;
  status = 0;
  if (UNLIKELY(!pack_call(entry->handle, call, slots, &status) || !current_stream(call, &stream))) {
    *miss = status == 0;
    return NULL;
  }
  *miss = false;
  if (UNLIKELY(!simple_grid(grid, sizes))) {
    PyObject *named = NULL, *returned = NULL;
    if (PyCallable_Check(grid)) {
      if (UNLIKELY(grid_depth == MAX_GRID_DEPTH)) {
        *miss = true;
        return NULL;
      }
      named = named_arguments(self, call, entry->substitutes);
      ++grid_depth;
      returned = named ? PyObject_CallOneArg(grid, named) : NULL;
      --grid_depth;
      status = returned ? resolve_grid(self, returned, sizes) : -1;
    } else {
      status = resolve_grid(self, grid, sizes);
    }
    Py_XDECREF(returned);
    Py_XDECREF(named);
    if (UNLIKELY(status < 0)) return NULL;
    /* What ran may have given a tensor other memory (resize_, set_, an assignment to data): ask again. */
    if (UNLIKELY(!call_key(call, self->parameters, self->n_parameters) || !has_key(entry, call) ||
                 !pack_call(entry->handle, call, slots, &status))) {
      *miss = status == 0;
      return NULL;
    }
  }
  if (UNLIKELY(handle_launch(entry->handle, stream, call->values, sizes, slots) < 0)) return NULL;
  return Py_NewRef(entry->result);
}

/* The whole of a launch; see launch_entry. */
static PyObject *dispatch(Dispatcher *self, PyObject *grid, PyObject *const *arguments, Py_ssize_t n_arguments,
                          PyObject *keywords, bool *miss) {
  *miss = true;
  if (UNLIKELY(torch_intercepts())) return NULL;
  Call call;
  if (UNLIKELY(!call_bind(&call, self->parameters, self->n_parameters, self->n_positional, arguments, n_arguments,
                          keywords)))
    return NULL;
  if (UNLIKELY(!call_key(&call, self->parameters, self->n_parameters))) return NULL;
  uint64_t hash = words_hash(call.words, call.n_words);
  Entry *entry;
  Py_BEGIN_CRITICAL_SECTION(self);
  entry = find_entry(self, &call, hash);
  if (LIKELY(entry != NULL)) entry_acquire(entry);
  Py_END_CRITICAL_SECTION();
  if (UNLIKELY(!entry)) return NULL;
  PyObject *result = NULL;
  if (LIKELY(entry->generation == environment_generation())) result = launch_entry(self, entry, grid, &call, miss);
  entry_release(entry);
  return result;
}

/* Splits a tuple and a dict into the form of a vectorcall. `storage` has room for `total`, what both hold. Returns the
 * names; the values of the dict are new references, since the dict may change while Python code runs. */
static PyObject *as_vector(PyObject *args, PyObject *kwargs, PyObject **storage, Py_ssize_t total) {
  Py_ssize_t n = PyTuple_GET_SIZE(args), position = 0, k = 0;
  PyObject *names = PyTuple_New(total - n), *name, *value;
  if (!names) return NULL;
  for (Py_ssize_t i = 0; i < n; ++i) storage[i] = PyTuple_GET_ITEM(args, i);
  bool right = PyDict_GET_SIZE(kwargs) == total - n; /* making the tuple may have run a finalizer */
  while (right && PyDict_Next(kwargs, &position, &name, &value)) {
    right = k < total - n && PyUnicode_Check(name);
    if (!right) break;
    PyTuple_SET_ITEM(names, k, Py_NewRef(name));
    storage[n + k++] = Py_NewRef(value);
  }
  if (right) return names;
  while (k) Py_DECREF(storage[n + --k]);
  Py_DECREF(names);
  PyErr_SetString(PyExc_TypeError, "keywords must be strings, in a dict that stays as it is");
  return NULL;
}

static void release_vector(PyObject *names, PyObject **storage, Py_ssize_t total) {
  for (Py_ssize_t i = total - PyTuple_GET_SIZE(names); i < total; ++i) Py_DECREF(storage[i]);
  Py_DECREF(names);
}

/* launch(grid, args, kwargs) -> the compiled kernel, or NotImplemented for a miss. */
static PyObject *dispatcher_launch(PyObject *self, PyObject *const *arguments, Py_ssize_t n) {
  if (n != 3 || !PyTuple_Check(arguments[1]) || !PyDict_Check(arguments[2])) {
    PyErr_SetString(PyExc_TypeError, "launch(grid, args: tuple, kwargs: dict)");
    return NULL;
  }
  Py_ssize_t total = PyTuple_GET_SIZE(arguments[1]) + PyDict_GET_SIZE(arguments[2]);
  if (total > MAX_PARAMETERS + MAX_OPTIONS) Py_RETURN_NOTIMPLEMENTED;
  PyObject *storage[total + 1];
  PyObject *keywords = as_vector(arguments[1], arguments[2], storage, total);
  if (!keywords) return NULL;
  bool miss;
  PyObject *result =
      dispatch((Dispatcher *)self, arguments[0], storage, PyTuple_GET_SIZE(arguments[1]), keywords, &miss);
  release_vector(keywords, storage, total);
  if (!result && miss) Py_RETURN_NOTIMPLEMENTED;
  return result;
}

/* Whether the handle's parameters can be filled from this call without asking the objects again. */
static bool handle_fits(const Dispatcher *self, const Handle *handle, const Call *call) {
  Py_ssize_t n_parameters = self->n_parameters;
  if (handle->n_codes != n_parameters) return false;
  for (Py_ssize_t i = 0; i < n_parameters; ++i) {
    PyObject *value = call->values[i];
    bool exact = PyLong_CheckExact(value) || PyBool_Check(value);
    if (self->parameters[i].is_constant && code_is_passed(handle->codes[i])) return false; /* has no raw value */
    switch (handle->codes[i]) {
      case 'x':
      case '1':
      case 'N': break;
      case 'P':
      case 'A':
        if (!exact && value != Py_None && !is_plain_tensor(value)) return false;
        break;
      case 'f':
      case 'd':
      case 'h':
      case 'g':
        if (!exact && !PyFloat_CheckExact(value)) return false;
        break;
      default:
        if (!exact) return false;
    }
  }
  return true;
}

/* The objects whose addresses stand in the key. */
static PyObject *objects_in_key(const Dispatcher *self, const Call *call) {
  PyObject *kept = PyList_New(0);
  for (Py_ssize_t i = 0; kept && i < self->n_parameters; ++i)
    if (!is_plain_tensor(call->values[i]) && PyList_Append(kept, call->values[i]) < 0) Py_CLEAR(kept);
  for (Py_ssize_t i = 0; kept && i < call->n_options; ++i)
    if (PyList_Append(kept, call->option_names[i]) < 0 || PyList_Append(kept, call->option_values[i]) < 0)
      Py_CLEAR(kept);
  return kept;
}

/* Takes the entry over. Returns 1 when it is new, 0 when it replaced an older one, -1 with an exception. */
static int insert(Dispatcher *self, Entry *entry) {
  if (self->count >= MAX_ENTRIES) forget_all(self);
  if (2 * (self->count + 1) > self->capacity && grow(self) < 0) return -1;
  size_t mask = (size_t)self->capacity - 1, at = entry->hash & mask;
  for (; self->table[at]; at = (at + 1) & mask) {
    Entry *old = self->table[at];
    if (old->hash == entry->hash && old->n_words == entry->n_words &&
        memcmp(old->words, entry->words, entry->n_words * sizeof *entry->words) == 0) {
      self->table[at] = entry;
      entry_release(old);
      return 0;
    }
  }
  self->table[at] = entry;
  ++self->count;
  return 1;
}

/* `remember`, with the arguments as a vectorcall has them. */
static PyObject *remember(Dispatcher *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names, Handle *handle,
                          PyObject *result, PyObject *watches, PyObject *substitutes) {
  Call call;
  bool simple = call_bind(&call, self->parameters, self->n_parameters, self->n_positional, arguments, n, names) &&
                call_key(&call, self->parameters, self->n_parameters) && handle_fits(self, handle, &call);
  if (!simple || handle->on_cuda != (call.device_type == DEVICE_CUDA)) Py_RETURN_FALSE;
  int holds = environment_check();
  if (holds < 0) return NULL;
  if (!holds) Py_RETURN_FALSE;

  Entry *entry = PyMem_Calloc(1, sizeof *entry + call.n_words * sizeof *call.words);
  if (!entry) return PyErr_NoMemory();
  entry->references = 1;
  entry->kept = objects_in_key(self, &call);
  if (!entry->kept || watches_parse(watches, &entry->watches) < 0) {
    entry_release(entry);
    return NULL;
  }
  entry->generation = environment_generation();
  entry->handle = (Handle *)Py_NewRef(handle);
  entry->result = Py_NewRef(result);
  entry->substitutes = substitutes == Py_None ? NULL : Py_NewRef(substitutes);
  entry->hash = words_hash(call.words, call.n_words);
  entry->n_words = call.n_words;
  memcpy(entry->words, call.words, call.n_words * sizeof *call.words);
  int status;
  Py_BEGIN_CRITICAL_SECTION(self);
  status = insert(self, entry);
  Py_END_CRITICAL_SECTION();
  if (status < 0) {
    entry_release(entry);
    return NULL;
  }
  return PyBool_FromLong(status);
}

static PyObject *dispatcher_remember(PyObject *object, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"args", "kwargs", "handle", "result", "watches", "substitutes", NULL};
  Dispatcher *self = (Dispatcher *)object;
  PyObject *positional, *named, *result, *watches, *substitutes = Py_None;
  Handle *handle;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!OO|O:remember", keywords, &PyTuple_Type, &positional,
                                   &PyDict_Type, &named, &Handle_Type, &handle, &result, &watches, &substitutes))
    return NULL;
  Py_ssize_t total = PyTuple_GET_SIZE(positional) + PyDict_GET_SIZE(named);
  if (total > MAX_PARAMETERS + MAX_OPTIONS) Py_RETURN_FALSE;
  PyObject *storage[total + 1];
  PyObject *names = as_vector(positional, named, storage, total);
  if (!names) return NULL;
  PyObject *done =
      remember(self, storage, PyTuple_GET_SIZE(positional), names, handle, result, watches, substitutes);
  release_vector(names, storage, total);
  return done;
}

static PyObject *dispatcher_forget(PyObject *self, PyObject *unused) {
  Py_BEGIN_CRITICAL_SECTION(self);
  forget_all((Dispatcher *)self);
  Py_END_CRITICAL_SECTION();
  Py_RETURN_NONE;
}

static Py_ssize_t dispatcher_length(PyObject *self) { return ((Dispatcher *)self)->count; }

/* One parameter from (name, is_constant, specialize, align, has_default, default). */
static int parse_parameter(PyObject *tuple, Parameter *parameter) {
  PyObject *name, *default_value;
  int is_constant, specialize, align, has_default;
  if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "UppppO:parameter", &name, &is_constant, &specialize, &align,
                                                 &has_default, &default_value)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a parameter is a tuple");
    return -1;
  }
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  parameter->name = name;
  parameter->default_value = has_default ? Py_NewRef(default_value) : NULL;
  parameter->is_constant = is_constant;
  parameter->specialize = specialize;
  parameter->align = align;
  return 0;
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"kernel", "name", "parameters", "positional", NULL};
  PyObject *kernel, *name, *parameters;
  Py_ssize_t positional;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUO!n:Dispatcher", keywords, &kernel, &name, &PyTuple_Type,
                                   &parameters, &positional))
    return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(parameters);
  if (count > MAX_PARAMETERS || positional < 0 || positional > count) {
    PyErr_Format(PyExc_ValueError, "%U: %zd parameters, %zd of them positional, expected at most %d", name, count,
                 positional, MAX_PARAMETERS);
    return NULL;
  }
  Dispatcher *self = (Dispatcher *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->kernel = Py_NewRef(kernel);
  self->name = Py_NewRef(name);
  self->n_positional = positional;
  self->parameters = PyMem_Calloc(count ? count : 1, sizeof(Parameter));
  if (!self->parameters) {
    PyErr_NoMemory();
    Py_DECREF(self);
    return NULL;
  }
  for (; self->n_parameters < count; ++self->n_parameters)
    if (parse_parameter(PyTuple_GET_ITEM(parameters, self->n_parameters), &self->parameters[self->n_parameters]) < 0) {
      Py_DECREF(self);
      return NULL;
    }
  return (PyObject *)self;
}

static int dispatcher_traverse(PyObject *object, visitproc visit, void *arg) {
  Dispatcher *self = (Dispatcher *)object;
  Py_VISIT(self->kernel);
  for (Py_ssize_t i = 0; i < self->n_parameters; ++i) Py_VISIT(self->parameters[i].default_value);
  for (Py_ssize_t i = 0; i < self->capacity; ++i) {
    Entry *entry = self->table[i];
    if (!entry) continue;
    int status = watches_traverse(&entry->watches, visit, arg);
    if (status) return status;
    Py_VISIT(entry->handle);
    Py_VISIT(entry->result);
    Py_VISIT(entry->substitutes);
    Py_VISIT(entry->kept);
  }
  return 0;
}

static int dispatcher_clear(PyObject *object) {
  Dispatcher *self = (Dispatcher *)object;
  forget_all(self);
  Py_CLEAR(self->kernel);
  for (Py_ssize_t i = 0; i < self->n_parameters; ++i) Py_CLEAR(self->parameters[i].default_value);
  return 0;
}

static void dispatcher_dealloc(PyObject *object) {
  Dispatcher *self = (Dispatcher *)object;
  PyObject_GC_UnTrack(object);
  dispatcher_clear(object);
  for (Py_ssize_t i = 0; i < self->n_parameters; ++i) Py_XDECREF(self->parameters[i].name);
  PyMem_Free(self->parameters);
  Py_XDECREF(self->name);
  Py_TYPE(object)->tp_free(object);
}
