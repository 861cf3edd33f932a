/* The key of a call: what its arguments tell the compiler, in a few machine words.
 *
 * Each parameter gives one word, a constant two. Two calls of one kernel with equal words compile to the same code. The
 * converse need not hold: a key may be finer than the compiler's, which costs an entry and never a wrong launch.
 */
#include "launch.h"

enum { DEVICE_CPU = 0, DEVICE_CUDA = 1 }; /* c10::DeviceType */

typedef enum {
  TAG_TENSOR = 1, /* | dtype << 8 | aligned << 32 */
  TAG_INT,        /* | class << 8 */
  TAG_FLOAT,
  TAG_BOOL,
  TAG_NONE,
  TAG_CONSTANT_INT,   /* and the value */
  TAG_CONSTANT_FLOAT, /* and its bits */
  TAG_CONSTANT_BOOL,  /* | value << 8 */
  TAG_CONSTANT_TEXT,  /* and the address of the interned text */
  TAG_OBJECT,         /* and its address: Python decided that its identity says enough */
  TAG_OPTION,         /* and the address of its interned name; its value follows as a constant */
  TAG_DEVICE,         /* | type << 8 | index << 32 */
} Tag;

enum { INT_ANY = 1, INT_ONE = 2, INT_MULTIPLE_OF_16 = 3, INT_BEYOND_INT32 = 8 };

/* One parameter of a kernel. */
typedef struct {
  PyObject *name;          /* interned */
  PyObject *default_value; /* NULL: none */
  bool is_constant;        /* annotated as constexpr */
  bool specialize;         /* ints equal to 1 and multiples of 16, aligned tensors */
  bool align;              /* multiples of 16, aligned tensors */
} Parameter;

#define MAX_PARAMETERS 256
#define MAX_OPTIONS 16
#define MAX_WORDS (2 * MAX_PARAMETERS + 5 * MAX_OPTIONS + 1)

/* A call, bound and keyed. Values are borrowed from the caller. */
typedef struct {
  PyObject *values[MAX_PARAMETERS]; /* in the order of the parameters */
  Slot raw[MAX_PARAMETERS];         /* of a tensor its address, of an int or bool its value */
  PyObject *option_names[MAX_OPTIONS], *option_values[MAX_OPTIONS];
  Py_ssize_t n_options;
  int32_t device_type, device_index;
  Py_ssize_t n_words;
  uint64_t words[MAX_WORDS];
} Call;

/* Places arguments. False: this call is not simple (an error, or too many options), Python has to see it. */
static bool call_bind(Call *call, const Parameter *parameters, Py_ssize_t n_parameters, Py_ssize_t n_positional,
                      PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keywords) {
  if (UNLIKELY(n_arguments > n_positional)) return false;
  for (Py_ssize_t i = 0; i < n_arguments; ++i) call->values[i] = arguments[i];
  for (Py_ssize_t i = n_arguments; i < n_parameters; ++i) call->values[i] = NULL;
  call->n_options = 0;
  Py_ssize_t n_keywords = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject *name = PyTuple_GET_ITEM(keywords, k), *value = arguments[n_arguments + k];
    if (UNLIKELY(!PyUnicode_CHECK_INTERNED(name))) return false;
    /* Most keywords follow the positional arguments in order. */
    Py_ssize_t place = n_arguments + k;
    if (place >= n_parameters || parameters[place].name != name) {
      for (place = 0; place < n_parameters; ++place)
        if (parameters[place].name == name) break;
    }
    if (place < n_parameters) {
      if (UNLIKELY(call->values[place])) return false; /* given twice */
      call->values[place] = value;
    } else {
      if (UNLIKELY(call->n_options == MAX_OPTIONS)) return false;
      call->option_names[call->n_options] = name;
      call->option_values[call->n_options++] = value;
    }
  }
  for (Py_ssize_t i = n_arguments; i < n_parameters; ++i) {
    if (!call->values[i]) {
      call->values[i] = parameters[i].default_value;
      if (UNLIKELY(!call->values[i])) return false; /* not given */
    }
  }
  return true;
}

/* A constant or an option: by value for simple types, else by identity. */
static inline bool key_constant(Call *call, PyObject *value) {
  uint64_t *words = call->words;
  if (PyLong_CheckExact(value)) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (UNLIKELY(overflow)) return false;
    words[call->n_words++] = TAG_CONSTANT_INT;
    words[call->n_words++] = (uint64_t)number;
  } else if (PyBool_Check(value)) {
    words[call->n_words++] = TAG_CONSTANT_BOOL | (uint64_t)(value == Py_True) << 8;
  } else if (value == Py_None) {
    words[call->n_words++] = TAG_NONE;
  } else if (PyUnicode_CheckExact(value)) {
    /* A text that is not interned may come again as another object of the same value. */
    if (UNLIKELY(!PyUnicode_CHECK_INTERNED(value))) return false;
    words[call->n_words++] = TAG_CONSTANT_TEXT;
    words[call->n_words++] = (uint64_t)(uintptr_t)value;
  } else if (PyFloat_CheckExact(value)) {
    double number = PyFloat_AS_DOUBLE(value);
    words[call->n_words++] = TAG_CONSTANT_FLOAT;
    memcpy(&words[call->n_words++], &number, sizeof number);
  } else {
    if (UNLIKELY(is_plain_tensor(value))) return false;
    words[call->n_words++] = TAG_OBJECT;
    words[call->n_words++] = (uint64_t)(uintptr_t)value;
  }
  return true;
}

static inline bool key_tensor(Call *call, const Parameter *parameter, PyObject *value, Slot *raw) {
  void *tensor = inner_tensor(value), *address;
  if (UNLIKELY(!tensor)) return false;
  int32_t dtype, device_type, device_index;
  if (torch_access.get_device_type(tensor, &device_type) || torch_access.get_device_index(tensor, &device_index))
    return false;
  if (call->device_type < 0) {
    if (UNLIKELY(device_type != DEVICE_CPU && device_type != DEVICE_CUDA)) return false;
    call->device_type = device_type;
    call->device_index = device_index;
  } else if (UNLIKELY(device_type != call->device_type || device_index != call->device_index)) {
    return false;
  }
  if (torch_access.get_dtype(tensor, &dtype) || torch_access.get_data_ptr(tensor, &address)) return false;
  if (UNLIKELY(!address)) return false; /* empty, or without memory of its own */
  raw->pointer = address;
  uint64_t aligned = parameter->specialize && parameter->align && ((uintptr_t)address & 15) == 0;
  call->words[call->n_words++] = TAG_TENSOR | (uint64_t)(uint32_t)dtype << 8 | aligned << 40;
  return true;
}

static inline bool key_value(Call *call, const Parameter *parameter, PyObject *value, Slot *raw) {
  if (LIKELY(is_plain_tensor(value))) return key_tensor(call, parameter, value, raw);
  uint64_t word;
  if (PyLong_CheckExact(value)) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (UNLIKELY(overflow)) return false;
    uint64_t kind = INT_ANY;
    if (parameter->specialize) {
      if (number == 1) kind = INT_ONE;
      else if (parameter->align && (number & 15) == 0) kind = INT_MULTIPLE_OF_16;
    }
    if (number != (int32_t)number) kind |= INT_BEYOND_INT32;
    raw->i64 = number;
    word = TAG_INT | kind << 8;
  } else if (value == Py_None) {
    raw->u64 = 0;
    word = TAG_NONE;
  } else if (PyFloat_CheckExact(value)) {
    word = TAG_FLOAT;
  } else if (PyBool_Check(value)) {
    raw->i64 = value == Py_True;
    word = TAG_BOOL;
  } else {
    return key_constant(call, value); /* a function, say */
  }
  call->words[call->n_words++] = word;
  return true;
}

/* The words of a bound call. False: Python has to see it. */
static bool call_key(Call *call, const Parameter *parameters, Py_ssize_t n_parameters) {
  call->n_words = 0;
  call->device_type = -1;
  for (Py_ssize_t i = 0; i < n_parameters; ++i) {
    const Parameter *parameter = &parameters[i];
    bool known = parameter->is_constant ? key_constant(call, call->values[i])
                                        : key_value(call, parameter, call->values[i], &call->raw[i]);
    if (UNLIKELY(!known)) return false;
  }
  if (UNLIKELY(call->device_type < 0)) return false; /* no tensor: the active driver decides */
  for (Py_ssize_t i = 0; i < call->n_options; ++i) {
    call->words[call->n_words++] = TAG_OPTION;
    call->words[call->n_words++] = (uint64_t)(uintptr_t)call->option_names[i];
    if (UNLIKELY(!key_constant(call, call->option_values[i]))) return false;
  }
  call->words[call->n_words++] =
      TAG_DEVICE | (uint64_t)call->device_type << 8 | (uint64_t)(uint32_t)call->device_index << 32;
  return true;
}

static inline uint64_t words_hash(const uint64_t *words, Py_ssize_t count) {
  uint64_t hash = 0x9e3779b97f4a7c15ull ^ (uint64_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}
