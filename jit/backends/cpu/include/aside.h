// Stores that what their loop still reads might see: such a block is stored aside, and put in its place after the loop.
// Most programs need none of it, so there is little to compile: spans are two numbers, the rest is out of line.
#pragma once
#include "memory.h"

namespace opgraft {

// Offsets or addresses from low to high, in a span of addresses without high.
struct Interval {
  i64 low, high;
};
INLINE Interval operator+(Interval a, Interval b) { return {a.low + b.low, a.high + b.high}; }
INLINE Interval between(i64 a, i64 b) { return {a < b ? a : b, a < b ? b : a}; }
INLINE Interval operator*(Interval a, i64 factor) { return between(a.low * factor, a.high * factor); }
INLINE Interval operator/(Interval a, i64 divisor) {
  if (divisor > 0) return {a.low / divisor, a.high / divisor};
  const i64 far = smax(smax(a.high, -a.high), smax(a.low, -a.low));
  return {-far, far};
}
// Offsets of the elements along an axis.
INLINE Interval along(i64 extent, i64 stride) { return between(0, (extent - 1) * stride); }
// Remainders by a divisor, of numbers of either sign.
INLINE Interval below(i64 divisor) {
  const i64 most = smax(divisor, -divisor) - 1;
  return {-most, most};
}
// The bytes of the elements of type T at these offsets.
template <class T> INLINE Interval span(const T* p, Interval offsets) {
  return {i64(p) + offsets.low * i64(sizeof(T)), i64(p) + (offsets.high + 1) * i64(sizeof(T))};
}
INLINE bool overlap(Interval a, Interval b) { return a.low < b.high && b.low < a.high; }
// Whether a loop over n elements that follow one another would load, from q on, what it stored, from p on: since it goes
// upwards, only if p is ahead of q.
template <class T, class U> INLINE bool ahead(const T* p, const U* q, i64 n) {
  static_assert(sizeof(T) == sizeof(U));
  return u64(i64(p) - i64(q) - 1) < u64(n * i64(sizeof(T)) - 1);
}
// Whether no two elements of a block are the same memory, by its axes' extents and strides in turn. False where that is
// hard to tell: a stride must exceed all that the smaller ones reach together.
__attribute__((noinline, cold)) inline bool strides_nest(const i64* axes, int rank) {
  for (int a = 0; a < rank; a++) {
    if (axes[2 * a] <= 1) continue;
    const i64 stride = smax(axes[2 * a + 1], -axes[2 * a + 1]);
    i64 reach = 0;
    for (int b = 0; b < rank; b++) {
      const i64 other = smax(axes[2 * b + 1], -axes[2 * b + 1]);
      if (b != a && axes[2 * b] > 1 && other <= stride) reach += other * (axes[2 * b] - 1);
    }
    if (stride <= reach) return false;
  }
  return true;
}
template <class... I> INLINE bool strides_nest(I... axes) {
  const i64 all[] = {i64(axes)...};
  return strides_nest(all, int(sizeof...(I)) / 2);
}

// Memory that stands in for a span of addresses, if it is needed.
struct Aside {
  i64 distance = 0;  // from each address to its stand-in
  i64 low;

  INLINE Aside(bool needed, Interval bytes) : low(bytes.low) {
    if (!needed) return;
    // What is never stored to costs no memory: its pages are not touched.
    void* memory = __builtin_malloc(bytes.high - bytes.low);
    if (!memory) __builtin_trap();
    distance = i64(memory) - low;
  }
  INLINE explicit operator bool() const { return distance != 0; }
  // Where to store what belongs at p.
  template <class T> INLINE T* of(T* p) const { return reinterpret_cast<T*>(i64(p) + distance); }
  // Bring n elements from there to p.
  template <class T> INLINE void put_back(T* p, i64 n = 1) const { __builtin_memcpy(p, of(p), n * sizeof(T)); }
  INLINE void release() const { __builtin_free(reinterpret_cast<void*>(low + distance)); }
};

}  // namespace opgraft
