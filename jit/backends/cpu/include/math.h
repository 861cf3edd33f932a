// Elementary functions for f32 vectors as inline polynomials; f64 and rare cases call the C library lane by lane.
//
// The polynomials and quotients of polynomials are minimax fits (iteratively reweighted least squares at Chebyshev
// nodes). exp, exp2, log and log2 are within 2 ulp; the others within 5. Infinities, NaN and subnormal values
// come out as the C library has them.
#pragma once
#include "vector.h"

namespace opgraft {

// f32 scalars travel through four lanes, so that a uniform value equals what a vector would hold.
#define THROUGH_LANES(NAME, BUILTIN) \
  if constexpr (same<V, f32>) { \
    return NAME(splat<4>(x))[0]; \
  } else if constexpr (!same<element<V>, f32>) { \
    return each_lane(x, [](element<V> y) -> element<V> { return BUILTIN(y); }); \
  } else

// The nearest integer of a small f32 (|x| < 2^22), and the same as i32.
template <class V> INLINE V nearest(V x) { return (x + 12582912.0f) - 12582912.0f; }

// x * 2^n for integral n (an f32 vector), right for subnormal results.
template <class V> INLINE V scale_by_power(V x, V n) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_scalefps512_mask(x, n, x, (u16)-1, 4);
#endif
  auto k = convert<i32>(n);
  auto half = k >> 1;
  return x * bits_as<V>((half + 127) << 23) * bits_as<V>((k - half + 127) << 23);
}

// exp of a reduced argument, |r| <= ln(2) / 2.
template <class V> INLINE V exp_reduced(V r) {
  V p = r * 0.000199476461f + 0.00139350863f;
  p = p * r + 0.00833320431f;
  p = p * r + 0.041666463f;
  p = p * r + 0.166666672f;
  p = p * r + 0.5f;
  return (p * r) * r + r + 1.0f;
}

template <class V> INLINE V exp(V x) {
  THROUGH_LANES(exp, __builtin_exp) {
    // Below -104 the result is 0: computing it would pass through subnormal numbers, which cost the CPU a hundred
    // cycles, and minus infinity is what masked elements hold. NaN stays (the second operand of raw_min).
    auto vanishes = lt(x, V(V{} - 103.972084f));
    x = select(vanishes, V{}, raw_min(V{} + 89.0f, x));
    V n = nearest(x * 1.44269504f);
    V r = x - n * 0.69287109375f;
    r = r - n * 0.000276086823f;
    return select(vanishes, V{}, scale_by_power(exp_reduced(r), n));
  }
}

template <class V> INLINE V exp2(V x) {
  THROUGH_LANES(exp2, __builtin_exp2) {
    auto vanishes = lt(x, V(V{} - 150.0f));
    x = select(vanishes, V{}, raw_min(V{} + 129.0f, x));
    V n = nearest(x);
    return select(vanishes, V{}, scale_by_power(exp_reduced(V((x - n) * 0.693147181f)), n));
  }
}

// x = (1 + f) * 2^e with 1 + f in [sqrt(1/2), sqrt(2)); returns log(1 + f) - f.
template <class V> INLINE V log_parts(V x, V& f, V& e) {
  using I = like<V, i32>;
  auto tiny = lt(x, V(V{} + 1.17549435e-38f));
  x = select(tiny, V(x * 8388608.0f), x);
  I bits = bits_as<I>(x);
  I exponent = (bits - 0x3f3504f3) >> 23;
  f = bits_as<V>(bits - (exponent << 23)) - 1.0f;
  e = convert<f32>(exponent) - select(tiny, V(V{} + 23.0f), V{});
  V p = f * 0.0675049648f - 0.116712913f;
  p = p * f + 0.118836649f;
  p = p * f - 0.124060646f;
  p = p * f + 0.142203227f;
  p = p * f - 0.166679949f;
  p = p * f + 0.20002073f;
  p = p * f - 0.250000089f;
  p = p * f + 0.333333135f;
  V square = f * f;
  return (p * f) * square - square * 0.5f;
}
// The values of a logarithm outside the positive finite numbers.
template <class V> INLINE V log_edges(V x, V r) {
  V infinity = V{} + __builtin_inff();
  r = select(lt(x, infinity), r, x);  // infinity and NaN map to themselves
  r = select(lt(x, V{}), V(V{} + __builtin_nanf("")), r);
  return select(eq(x, V{}), V(-infinity), r);
}
template <class V> INLINE V log(V x) {
  THROUGH_LANES(log, __builtin_log) {
    V f, e;
    V y = log_parts(x, f, e) + e * 0.000276086823f;
    return log_edges(x, V(e * 0.69287109375f + (f + y)));
  }
}
template <class V> INLINE V log2(V x) {
  THROUGH_LANES(log2, __builtin_log2) {
    V f, e;
    V y = log_parts(x, f, e);
    // log2(e) = 1 + 0.4427: the part that is 1 is added without rounding error.
    return log_edges(x, V(((y * 0.442695041f + f * 0.442695041f) + y) + f + e));
  }
}

// sin (turns = 0) or cos (turns = 1) by reduction to |r| <= pi / 4; large arguments go to the C library.
template <int Turns, class V> INLINE V circular(V x) {
#if defined(__FMA__)
  constexpr f32 largest = 30000.0f;
#else
  constexpr f32 largest = 8000.0f;
#endif
  using I = like<V, i32>;
  auto small = le(absolute(x), V(V{} + largest));
  V y = select(small, x, V{});
  V n = nearest(y * 0.636619772f);
#if defined(__FMA__)
  V r = fma(n, V(V{} - 1.57079637f), y);
  r = fma(n, V(V{} + 4.37113883e-08f), r);
  r = fma(n, V(V{} + 1.71512451e-15f), r);
#else
  V r = y - n * 1.5703125f;
  r = r - n * 0.0004837512969970703f;
  r = r - n * 7.549533620476723e-08f;
  r = r - n * 2.5633440682570896e-12f;
#endif
  V s = r * r;
  V sine = s * 2.83751319e-06f - 0.000198535112f;
  sine = sine * s + 0.00833338033f;
  sine = sine * s - 0.166666672f;
  sine = (sine * s) * r + r;
  V cosine = s * -2.89772998e-07f + 2.48229844e-05f;
  cosine = cosine * s - 0.00138889824f;
  cosine = cosine * s + 0.0416666679f;
  cosine = (cosine * s) * s + (1.0f - 0.5f * s);
  I quadrant = convert<i32>(n) + Turns;
  V value = select(lowest_bit(quadrant), cosine, sine);
  value = bits_as<V>(bits_as<I>(value) ^ ((quadrant & 2) << 30));
  auto large = ~small;
  if (__builtin_expect(any(large), 0))
    for (int i = 0; i < lanes<V>; i++)
      if (large[i]) value[i] = Turns ? __builtin_cosf(x[i]) : __builtin_sinf(x[i]);
  return value;
}
template <class V> INLINE V sin(V x) { THROUGH_LANES(sin, __builtin_sin) { return circular<0>(x); } }
template <class V> INLINE V cos(V x) { THROUGH_LANES(cos, __builtin_cos) { return circular<1>(x); } }

// p / q for q in [1, 2^100].
template <class V> INLINE V moderate_quotient(V p, V q) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) {  // a division of 16 lanes takes 16 cycles, this 6
    V r = __builtin_ia32_rcp14ps512_mask(q, q, (u16)-1);
    r = fma(fma(-q, r, V(V{} + 1.0f)), r, r);
    V x = p * r;
    return fma(fma(-q, x, p), r, x);
  }
#endif
  return p / q;
}
template <class V> INLINE V between(V low, V x, V high) { return raw_max(low, raw_min(high, x)); }  // NaN stays

template <class V> INLINE V erf(V x) {
  THROUGH_LANES(erf, __builtin_erf) {
    x = between(V(V{} - 3.95f), x, V(V{} + 3.95f));
    V s = x * x;
    V p = s * -1.29670106e-08f + 4.64042671e-06f;
    p = p * s + 0.000377936348f;
    p = p * s + 0.00384336216f;
    p = p * s + 0.0542747383f;
    p = p * s + 0.185168886f;
    p = p * s + 1.12837917f;
    V q = s * 6.26924244e-05f + 0.00130406012f;
    q = q * s + 0.0154437003f;
    q = q * s + 0.113910924f;
    q = q * s + 0.497435062f;
    q = q * s + 1.0f;
    return between(V(V{} - 1.0f), moderate_quotient(V(x * p), q), V(V{} + 1.0f));
  }
}

template <class V> INLINE V tanh(V x) {
  THROUGH_LANES(tanh, __builtin_tanh) {
    x = between(V(V{} - 9.01f), x, V(V{} + 9.01f));
    V s = x * x;
    V p = s * -1.22248841e-11f + 3.06138323e-08f;
    p = p * s + 2.80194137e-05f;
    p = p * s + 0.0038689194f;
    p = p * s + 0.13680387f;
    p = p * s + 1.0f;
    V q = s * 1.28820271e-06f + 0.000393967488f;
    q = q * s + 0.0272480034f;
    q = q * s + 0.470137191f;
    q = q * s + 1.0f;
    return between(V(V{} - 1.0f), moderate_quotient(V(x * p), q), V(V{} + 1.0f));
  }
}

template <class V> INLINE V quotient(V x, V y) { return x / y; }
template <class V> INLINE V multiply_high_signed(V x, V y) {
  using T = element<V>;
  return each_lane(x, y, [](T a, T b) -> T { return T(((__int128)a * b) >> (8 * sizeof(T))); });
}
template <class V> INLINE V rcbrt(V x) { return element<V>(1) / cbrt(x); }

// libdevice's predicates give integers.
template <class M> INLINE auto truth_to_i32(M m) { return mask_to_unsigned<i32>(m); }
template <class V> INLINE auto is_nan(V x) { return truth_to_i32(unordered(x, x)); }
template <class V> INLINE auto is_infinite(V x) { return truth_to_i32(eq(absolute(x), fill(x, __builtin_inff()))); }
template <class V> INLINE auto is_finite(V x) { return truth_to_i32(lt(absolute(x), fill(x, __builtin_inff()))); }
template <class V> INLINE auto sign_bit(V x) {
  using I = like<V, signed_of<element<V>>>;
  return truth_to_i32(lt(bits_as<I>(x), I{}));
}
template <class V> INLINE V saturate_unit(V x) { return minnum(maxnum(x, V{}), fill(x, 1)); }
template <class V> INLINE auto bits_of_float(V x) { return bits_as<like<V, i32>>(x); }
template <class V> INLINE auto float_of_bits(V x) { return bits_as<like<V, f32>>(x); }
template <class V> INLINE auto round_to_i64(V x) { return saturate<i64>(round_even(x)); }
template <class V> INLINE auto round_to_i32(V x) { return saturate<i32>(round_even(x)); }
template <class V> INLINE auto truncate_to_i32(V x) { return saturate<i32>(x); }
template <class V> INLINE auto floor_to_i32(V x) { return saturate<i32>(floor(x)); }
template <class V> INLINE auto ceil_to_i32(V x) { return saturate<i32>(ceil(x)); }

// Bits of an integer, lane by lane. The counts are i32.
template <class V, class F> INLINE auto count_bits(V x, F f) {
  like<V, i32> r;
  if constexpr (is_scalar<V>) r = f(x);
  else for (int i = 0; i < lanes<V>; i++) r[i] = f(x[i]);
  return r;
}
template <class V> INLINE auto count_leading_zeros(V x) {
  using U = unsigned_of<element<V>>;
  return count_bits(x, [](U y) -> i32 { return y == 0 ? 8 * sizeof(U) : sizeof(U) == 8 ? __builtin_clzll(y) : __builtin_clz(y); });
}
template <class V> INLINE auto population_count(V x) {
  using U = unsigned_of<element<V>>;
  return count_bits(x, [](U y) -> i32 { return __builtin_popcountll(y); });
}
template <class V> INLINE auto find_first_set(V x) {
  using U = unsigned_of<element<V>>;
  return count_bits(x, [](U y) -> i32 { return y == 0 ? 0 : __builtin_ctzll(y) + 1; });
}
template <class V> INLINE V bit_reverse(V x) {
  using T = element<V>;
  return each_lane(x, [](T y) -> T {
    unsigned_of<T> r = 0;
    for (unsigned b = 0; b < 8 * sizeof(T); b++) r |= (unsigned_of<T>(y) >> b & 1) << (8 * sizeof(T) - 1 - b);
    return T(r);
  });
}

}  // namespace opgraft
