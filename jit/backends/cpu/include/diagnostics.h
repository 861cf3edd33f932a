// tl.device_print and tl.device_assert.
#pragma once
#include "launch.h"

extern "C" int printf(const char*, ...);
extern "C" int snprintf(char*, __SIZE_TYPE__, const char*, ...);
extern "C" int fflush(void*);

namespace opgraft {

inline void print_text(const Program& program, const char* text) {
  printf("pid (%d, %d, %d)%s\n", program.id[0], program.id[1], program.id[2], text);
  fflush(nullptr);
}

template <bool Hex, bool Signed, class T>
inline void print_value(const Program& program, const char* prefix, const i32* index, int rank, T x) {
  char text[64];
  if constexpr (same<T, bool>) snprintf(text, sizeof text, "%d", int(x));
  else if constexpr (is_pointer<T>) snprintf(text, sizeof text, "%p", (const void*)x);
  else if constexpr (is_float<T>) snprintf(text, sizeof text, Hex ? "%a" : "%f", f64(x));
  else if constexpr (Hex) snprintf(text, sizeof text, "0x%0*llx", int(2 * sizeof(T)), (unsigned long long)unsigned_of<T>(x));
  else if constexpr (Signed) snprintf(text, sizeof text, "%lld", (long long)x);
  else snprintf(text, sizeof text, "%llu", (unsigned long long)unsigned_of<T>(x));
  char where[160] = "()";
  if (rank > 0) {
    int used = 0;
    for (int axis = 0; axis < rank; axis++)
      used += snprintf(where + used, sizeof where - used, "%s%d", axis ? ", " : "(", index[axis]);
    snprintf(where + used, sizeof where - used, ")");
  }
  printf("pid (%d, %d, %d) idx %s%s%s\n", program.id[0], program.id[1], program.id[2], where, prefix, text);
  fflush(nullptr);
}

// The first assertion that failed: 0 none, 1 being written, 2 there.
static int fault_state;
static char fault_text[2048];

inline void fail(const Program& program, const char* message) {
  int none = 0;
  if (!__atomic_compare_exchange_n(&fault_state, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  snprintf(fault_text, sizeof fault_text, "%s (program %d, %d, %d)", message, program.id[0], program.id[1], program.id[2]);
  __atomic_store_n(&fault_state, 2, __ATOMIC_RELEASE);
}
inline const char* take_fault() {
  int there = 2;
  return __atomic_compare_exchange_n(&fault_state, &there, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? fault_text : nullptr;
}

}  // namespace opgraft
