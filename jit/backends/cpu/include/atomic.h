// Atomic updates of one element; each returns what was there before.
#pragma once
#include "memory.h"

namespace opgraft {

// Replaces the element by f(element), for any type of 1, 2, 4 or 8 bytes.
template <class T, class F> INLINE value<T> atomic_update(T* p, F f) {
  using U = unsigned_of<T>;
  U* place = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(place, __ATOMIC_RELAXED);
  for (;;) {
    T before = bits_as<T>(old), after;
    store(&after, f(load(&before)));
    if (__atomic_compare_exchange_n(place, &old, bits_as<U>(after), true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return load(&before);
  }
}
#define ATOMIC(NAME, EXPRESSION) \
  template <class T> INLINE value<T> NAME(T* p, value<T> x) { \
    return atomic_update(p, [x](value<T> old) -> value<T> { return EXPRESSION; }); \
  }
ATOMIC(atomic_add, value<T>(old + x))
ATOMIC(atomic_and, value<T>(old & x))
ATOMIC(atomic_or, value<T>(old | x))
ATOMIC(atomic_xor, value<T>(old ^ x))
ATOMIC(atomic_exchange, x)
ATOMIC(atomic_max, old > x ? old : x)
ATOMIC(atomic_min, old < x ? old : x)
ATOMIC(atomic_umax, umax(old, x))
ATOMIC(atomic_umin, umin(old, x))

// Stores x where the bits are those of expected.
template <class T> INLINE value<T> atomic_cas(T* p, value<T> expected, value<T> x) {
  using U = unsigned_of<T>;
  T from, to;
  store(&from, expected);
  store(&to, x);
  U old = bits_as<U>(from);
  __atomic_compare_exchange_n(reinterpret_cast<U*>(p), &old, bits_as<U>(to), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  T before = bits_as<T>(old);
  return load(&before);
}

}  // namespace opgraft
