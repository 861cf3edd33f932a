// One value from all lanes of a vector, by halving.
#pragma once
#include "vector.h"

namespace opgraft {


template <class V, class F> INLINE element<V> across_lanes(V v, F f) {
  constexpr int n = lanes<V>;
  if constexpr (n == 1) {
    return v[0];
  } else if constexpr (n == 2) {
    return f(v[0], v[1]);
  } else {
    using Half = vec<element<V>, n / 2>;
    union { V whole; Half half[2]; } parts = {v};
    return across_lanes(Half(f(parts.half[0], parts.half[1])), f);
  }
}
#define ACROSS(NAME, EXPRESSION) \
  template <class V> INLINE element<V> NAME(V v) { \
    return across_lanes(v, [](auto a, auto b) { return EXPRESSION; }); \
  }
ACROSS(sum_lanes, a + b)
ACROSS(product_lanes, a * b)
ACROSS(maxnum_lanes, maxnum(a, b))
ACROSS(minnum_lanes, minnum(a, b))
ACROSS(maximum_lanes, maximum(a, b))
ACROSS(minimum_lanes, minimum(a, b))
ACROSS(smax_lanes, smax(a, b))
ACROSS(smin_lanes, smin(a, b))
ACROSS(umax_lanes, umax(a, b))
ACROSS(umin_lanes, umin(a, b))
ACROSS(and_lanes, a & b)
ACROSS(or_lanes, a | b)
ACROSS(xor_lanes, a ^ b)

}  // namespace opgraft
