/* Python values to kernel parameters, one character of a handle's `codes` at a time.
 *
 *   P pointer              A pointer, 16-byte aligned
 *   b i8    B u8   s i16   S u16   i i32   w u32   l i64   u u64         (range guarded)
 *   c i8    C u8   t i16   T u16   I i32   W u32   L i64   U u64         (the same, and a multiple of 16)
 *   o i1 (bool)            h fp16  g bf16  f fp32  d fp64
 *   1 must equal 1         N must be None          x constexpr           (these three are not passed)
 */
#include "launch.h"

typedef enum {
  PACKED,       /* the slot holds the parameter */
  NOT_PASSED,   /* the kernel has no such parameter */
  GUARD_FAILED, /* the value is outside what this kernel was compiled for */
  PACK_ERROR    /* a Python exception is set */
} Packed;

typedef struct {
  int64_t low, high; /* both 0 for u64: any value from 0 to 2**64 - 1 */
  uint32_t divisor_mask;
} IntegerCode;

static const IntegerCode integer_codes[128] = {
    ['b'] = {INT8_MIN, INT8_MAX, 0},   ['c'] = {INT8_MIN, INT8_MAX, 15},
    ['B'] = {0, UINT8_MAX, 0},         ['C'] = {0, UINT8_MAX, 15},
    ['s'] = {INT16_MIN, INT16_MAX, 0}, ['t'] = {INT16_MIN, INT16_MAX, 15},
    ['S'] = {0, UINT16_MAX, 0},        ['T'] = {0, UINT16_MAX, 15},
    ['i'] = {INT32_MIN, INT32_MAX, 0}, ['I'] = {INT32_MIN, INT32_MAX, 15},
    ['w'] = {0, UINT32_MAX, 0},        ['W'] = {0, UINT32_MAX, 15},
    ['l'] = {INT64_MIN, INT64_MAX, 0}, ['L'] = {INT64_MIN, INT64_MAX, 15},
    ['o'] = {0, 1, 0},
};

static bool code_is_known(char code) { return code > 0 && strchr("PAbBsSiwlucCtTIWLUohgfd1Nx", code) != NULL; }

static bool code_is_passed(char code) { return code != '1' && code != 'N' && code != 'x'; }

static Packed pack_u64(PyObject *value, uint32_t divisor_mask, Slot *slot) {
  PyObject *index = PyNumber_Index(value);
  if (!index) return PACK_ERROR;
  slot->u64 = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return PACK_ERROR;
    PyErr_Clear();
    return GUARD_FAILED;
  }
  return slot->u64 & divisor_mask ? GUARD_FAILED : PACKED;
}

static inline Packed pack_integer(char code, PyObject *value, Slot *slot) {
  int overflow;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (UNLIKELY(number == -1 && PyErr_Occurred())) return PACK_ERROR;
  const IntegerCode *range = &integer_codes[(unsigned char)code];
  if (UNLIKELY(overflow || number < range->low || number > range->high || (number & range->divisor_mask)))
    return GUARD_FAILED;
  slot->i64 = number;
  return PACKED;
}

/* Round to nearest even, as torch does; a NaN stays a NaN. */
static uint16_t bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static Packed pack_float(char code, PyObject *value, Slot *slot) {
  double number = PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : PyFloat_AsDouble(value);
  if (UNLIKELY(number == -1.0 && PyErr_Occurred())) return PACK_ERROR;
  slot->u64 = 0;
  switch (code) {
    case 'f': slot->f32 = (float)number; return PACKED;
    case 'd': slot->f64 = number; return PACKED;
    case 'g': slot->bits16 = bf16_bits((float)number); return PACKED;
    default:
#if PY_VERSION_HEX >= 0x030B0000
      return PyFloat_Pack2(number, (char *)&slot->bits16, 1) < 0 ? PACK_ERROR : PACKED;
#else
      return _PyFloat_Pack2(number, (unsigned char *)&slot->bits16, 1) < 0 ? PACK_ERROR : PACKED;
#endif
  }
}

static inline Packed pack_pointer(PyObject *value, uint32_t divisor_mask, Slot *slot) {
  if (UNLIKELY(read_pointer(value, &slot->u64) < 0)) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return PACK_ERROR;
    PyErr_Clear();
    return GUARD_FAILED; /* an int that is no address */
  }
  return UNLIKELY(slot->u64 & divisor_mask) ? GUARD_FAILED : PACKED;
}

static inline Packed pack(char code, PyObject *value, Slot *slot) {
  switch (code) {
    case 'P': return pack_pointer(value, 0, slot);
    case 'A': return pack_pointer(value, 15, slot);
    case 'x': return NOT_PASSED;
    case 'N': return value == Py_None ? NOT_PASSED : GUARD_FAILED;
    case '1': {
      int overflow;
      int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (number == -1 && PyErr_Occurred()) return PACK_ERROR;
      return number == 1 ? NOT_PASSED : GUARD_FAILED;
    }
    case 'f':
    case 'd':
    case 'h':
    case 'g': return pack_float(code, value, slot);
    case 'u': return pack_u64(value, 0, slot);
    case 'U': return pack_u64(value, 15, slot);
    default: return pack_integer(code, value, slot);
  }
}
