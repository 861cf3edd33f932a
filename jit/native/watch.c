/* Watches: what a remembered launch depends on besides its arguments, checked by identity before each launch.
 *
 * A watch is a tuple (container, key, expected) from Python:
 *
 *   dict, key, expected       the entry is that very object (MISSING: there is none)
 *   class, name, expected     the same for an attribute in the class's own namespace
 *   list, None, None          the list is empty
 *   cell, None, expected      the closure variable holds that very object
 *   callable, None, None      calling it gives something false
 */
#include "launch.h"

typedef enum { WATCH_DICT, WATCH_LIST, WATCH_CELL, WATCH_CALL } WatchKind;

typedef struct {
  WatchKind kind;
  PyObject *container, *key, *expected;
  uint64_t version; /* of the dict when the entry was last found to be right */
} Watch;

/* A number that changes whenever the dict does: nothing needs to be looked up while it stays. CPython 3.10 to 3.12 have
 * it (deprecated in the last of them); 0 where there is none. */
static inline uint64_t dict_version(PyObject *dict) {
#if PY_VERSION_HEX < 0x030D0000 && !defined(PYPY_VERSION)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return ((PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  return 0;
#endif
}

typedef struct {
  Py_ssize_t count;
  Watch *items;
} Watches;

static PyObject *missing; /* the object MISSING */

static PyObject *class_namespace(PyTypeObject *type) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyType_GetDict(type);
#else
  return Py_XNewRef(type->tp_dict);
#endif
}

static int watch_parse(PyObject *tuple, Watch *watch) {
  PyObject *container, *key, *expected;
  if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "OOO:watch", &container, &key, &expected)) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a watch is (container, key, expected), got %R", tuple);
    return -1;
  }
  if (PyType_Check(container)) {
    watch->kind = WATCH_DICT;
    watch->container = class_namespace((PyTypeObject *)container);
    if (!watch->container) return -1;
  } else {
    watch->kind = PyDict_Check(container)   ? WATCH_DICT
                  : PyList_Check(container) ? WATCH_LIST
                  : PyCell_Check(container) ? WATCH_CELL
                                            : WATCH_CALL;
    watch->container = Py_NewRef(container);
  }
  watch->key = Py_NewRef(key);
  watch->expected = Py_NewRef(expected);
  return 0;
}

static void watches_clear(Watches *watches) {
  Watch *items = watches->items;
  Py_ssize_t count = watches->count;
  watches->items = NULL;
  watches->count = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_XDECREF(items[i].container);
    Py_XDECREF(items[i].key);
    Py_XDECREF(items[i].expected);
  }
  PyMem_Free(items);
}

static int watches_parse(PyObject *list, Watches *watches) {
  PyObject *items = PySequence_Fast(list, "watches are a list");
  if (!items) return -1;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  watches->count = 0;
  watches->items = PyMem_Calloc(count ? count : 1, sizeof(Watch));
  int status = watches->items ? 0 : -1;
  if (status < 0) PyErr_NoMemory();
  for (Py_ssize_t i = 0; status == 0 && i < count; ++i) {
    status = watch_parse(PySequence_Fast_GET_ITEM(items, i), &watches->items[i]);
    if (status == 0) watches->count = i + 1;
  }
  Py_DECREF(items);
  if (status < 0) watches_clear(watches);
  return status;
}

static int watches_traverse(const Watches *watches, visitproc visit, void *arg) {
  for (Py_ssize_t i = 0; i < watches->count; ++i) {
    Py_VISIT(watches->items[i].container);
    Py_VISIT(watches->items[i].key);
    Py_VISIT(watches->items[i].expected);
  }
  return 0;
}

/* 1 when everything is as expected, 0 when something changed, -1 with an exception. */
static inline int watches_hold(const Watches *watches) {
  for (Py_ssize_t i = 0; i < watches->count; ++i) {
    Watch *watch = &watches->items[i];
    switch (watch->kind) {
      case WATCH_DICT: {
        uint64_t version = dict_version(watch->container);
        if (LIKELY(version && version == watch->version)) break;
        PyObject *found = PyDict_GetItemWithError(watch->container, watch->key);
        if (UNLIKELY(!found)) {
          if (PyErr_Occurred()) return -1;
          found = missing;
        }
        if (UNLIKELY(found != watch->expected)) return 0;
        if (version) watch->version = version;
        break;
      }
      case WATCH_LIST:
        if (UNLIKELY(PyList_GET_SIZE(watch->container) != 0)) return 0;
        break;
      case WATCH_CELL:
        if (UNLIKELY(PyCell_GET(watch->container) != watch->expected)) return 0;
        break;
      case WATCH_CALL: {
        PyObject *result = PyObject_CallNoArgs(watch->container);
        int changed = result ? PyObject_IsTrue(result) : -1;
        Py_XDECREF(result);
        if (changed < 0) return -1;
        if (changed) return 0;
        break;
      }
    }
  }
  return 1;
}

/* A set of watches that is replaced as a whole, by all threads' leave: NULL until it is first set. */
typedef struct {
  Py_ssize_t references; /* with a GIL: looking things up may run Python code (__eq__ of a key), which sets another one */
  Watches watches;
  uint64_t generation;
} Snapshot;

static Snapshot *environment; /* what every remembered launch depends on; when it changed, none of them counts */
static Snapshot *no_hooks;    /* that no launch hook is set: what handles look at */

static inline uint64_t environment_generation(void) {
  const Snapshot *current = __atomic_load_n(&environment, __ATOMIC_ACQUIRE);
  return current ? current->generation : 0;
}

static void snapshot_free(Snapshot *old) {
  if (!old) return;
#ifndef Py_GIL_DISABLED
  if (--old->references > 0) return;
  watches_clear(&old->watches);
  PyMem_Free(old);
#endif
  /* Without a GIL another thread may be reading it. Snapshots change rarely, so it is simply left. */
}

/* As watches_hold. */
static inline int snapshot_holds(Snapshot *const *snapshot) {
  Snapshot *current = __atomic_load_n(snapshot, __ATOMIC_ACQUIRE);
  if (UNLIKELY(current == NULL)) return 0;
#ifndef Py_GIL_DISABLED
  ++current->references;
#endif
  int holds = watches_hold(&current->watches);
  snapshot_free(current);
  return holds;
}

static inline int environment_check(void) { return snapshot_holds(&environment); }

static inline int hooks_check(void) { return snapshot_holds(&no_hooks); }

static PyObject *snapshot_set(Snapshot **snapshot, PyObject *list) {
  Snapshot *made = PyMem_Calloc(1, sizeof *made);
  if (!made) return PyErr_NoMemory();
  made->references = 1;
  if (watches_parse(list, &made->watches) < 0) {
    PyMem_Free(made);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < made->watches.count; ++i)
    if (made->watches.items[i].kind == WATCH_CALL) {
      watches_clear(&made->watches);
      PyMem_Free(made);
      PyErr_SetString(PyExc_TypeError, "this is watched without calling Python");
      return NULL;
    }
  const Snapshot *current = __atomic_load_n(snapshot, __ATOMIC_ACQUIRE);
  made->generation = current ? current->generation + 1 : 1;
  snapshot_free(__atomic_exchange_n(snapshot, made, __ATOMIC_ACQ_REL));
  Py_RETURN_NONE;
}

/* environment_set(watches): what is expected from now on. */
static PyObject *environment_set(PyObject *module, PyObject *list) { return snapshot_set(&environment, list); }

/* environment_holds() -> bool */
static PyObject *environment_holds(PyObject *module, PyObject *unused) {
  int holds = environment_check();
  return holds < 0 ? NULL : PyBool_FromLong(holds);
}

/* no_hooks_set(watches): while they hold, no launch hook is set. */
static PyObject *no_hooks_set(PyObject *module, PyObject *list) { return snapshot_set(&no_hooks, list); }
