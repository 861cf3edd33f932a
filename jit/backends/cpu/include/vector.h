// Vectors of N lanes and what can be done with them lane by lane.
//
// Generated kernels include this file first. It needs no system header (one <cmath> costs more compile time than a
// whole kernel) and builds on the vector extensions of GCC and Clang. Conventions:
//   * vec<T, N> is a vector of N lanes; mask<N> is vec<i32, N> with lanes 0 (false) and -1 (true);
//   * every function takes a vector or a scalar ("uniform") argument and returns the same kind; a uniform truth value
//     is a bool;
//   * fp16, bf16 and fp8 exist in memory only (convert.h); in registers they are f32 lanes holding exactly
//     representable values.
#pragma once

namespace opgraft {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = __INT64_TYPE__;
using u64 = __UINT64_TYPE__;
using f32 = float;
using f64 = double;

#define INLINE inline __attribute__((always_inline))

// Instruction sets are used through GCC's builtins; Clang finds the same instructions by itself.
#if defined(__x86_64__) && !defined(__clang__)
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HAS_AVX512 1
#endif
#if defined(__AVX2__) && defined(__FMA__)
#define HAS_AVX2 1
#endif
#endif
#ifndef HAS_AVX512
#define HAS_AVX512 0
#endif
#ifndef HAS_AVX2
#define HAS_AVX2 0
#endif

template <class T, int N> struct vector_type {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T, int N> using vec = typename vector_type<T, N>::type;
template <int N> using mask = vec<i32, N>;

template <class A, class B> inline constexpr bool same = false;
template <class A> inline constexpr bool same<A, A> = true;

template <class T> struct without_reference { using type = T; };
template <class T> struct without_reference<T&> { using type = T; };
template <class V> struct shape_of {  // a vector
  using element = typename without_reference<decltype((*static_cast<V*>(nullptr))[0])>::type;
  static constexpr bool scalar = false;
};
template <class T> struct scalar_shape {
  using element = T;
  static constexpr bool scalar = true;
};
template <> struct shape_of<bool> : scalar_shape<bool> {};
template <> struct shape_of<i8> : scalar_shape<i8> {};
template <> struct shape_of<u8> : scalar_shape<u8> {};
template <> struct shape_of<i16> : scalar_shape<i16> {};
template <> struct shape_of<u16> : scalar_shape<u16> {};
template <> struct shape_of<i32> : scalar_shape<i32> {};
template <> struct shape_of<u32> : scalar_shape<u32> {};
template <> struct shape_of<i64> : scalar_shape<i64> {};
template <> struct shape_of<u64> : scalar_shape<u64> {};
template <> struct shape_of<f32> : scalar_shape<f32> {};
template <> struct shape_of<f64> : scalar_shape<f64> {};

template <class V> using element = typename shape_of<V>::element;
template <class V> inline constexpr bool is_scalar = shape_of<V>::scalar;
template <class V> inline constexpr int lanes = sizeof(V) / sizeof(element<V>);
template <class T> inline constexpr bool is_float = same<T, f32> || same<T, f64>;
template <class T> inline constexpr bool is_pointer = false;
template <class T> inline constexpr bool is_pointer<T*> = true;
template <class T> inline constexpr bool is_signed = T(-1) < T(0);

template <int Bytes> struct integer_of;
template <> struct integer_of<1> { using s = i8; using u = u8; };
template <> struct integer_of<2> { using s = i16; using u = u16; };
template <> struct integer_of<4> { using s = i32; using u = u32; };
template <> struct integer_of<8> { using s = i64; using u = u64; };
template <bool Signed> struct word { using type = i32; };
template <> struct word<false> { using type = u32; };
template <class T> using narrow_through = typename word<is_signed<T>>::type;
template <class T> using signed_of = typename integer_of<sizeof(T)>::s;
template <class T> using unsigned_of = typename integer_of<sizeof(T)>::u;

// The same bits seen as another type of the same size.
template <class To, class From> INLINE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the size");
  To r;
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}

// The type V with its elements replaced by T.
template <class V, class T, bool Scalar> struct with_element { using type = T; };
template <class V, class T> struct with_element<V, T, false> { using type = vec<T, lanes<V>>; };
template <class V, class T> using like = typename with_element<V, T, is_scalar<V>>::type;
template <int N, class T> INLINE vec<T, N> splat(T x) {
  if constexpr (is_float<T>) return x - vec<T, N>{};  // not 0 + x, which loses the sign of -0
  else return vec<T, N>{} + x;
}
template <int N> INLINE mask<N> splat_mask(bool x) { return splat<N>(i32(-i32(x))); }

// Lanes 0, 1, 2, ...
template <class T, T... I> struct sequence {
  static INLINE vec<T, sizeof...(I)> lanes() { return vec<T, sizeof...(I)>{I...}; }
};
#if defined(__clang__)
template <class T, int N> INLINE vec<T, N> iota() { return __make_integer_seq<sequence, T, N>::lanes(); }
#else
template <class T, int N> INLINE vec<T, N> iota() { return sequence<T, __integer_pack(T(N))...>::lanes(); }
#endif

// A value of the same type with every lane x.
template <class V> INLINE V fill(V, element<V> x) {
  if constexpr (is_scalar<V>) return x; else return splat<lanes<V>>(x);
}

// Calls f for every lane.
template <class F, class V> INLINE V each_lane(V x, F f) {
  if constexpr (is_scalar<V>) {
    return f(x);
  } else {
    V r;
    for (int i = 0; i < lanes<V>; i++) r[i] = f(x[i]);
    return r;
  }
}
template <class F, class V> INLINE V each_lane(V x, V y, F f) {
  if constexpr (is_scalar<V>) {
    return f(x, y);
  } else {
    V r;
    for (int i = 0; i < lanes<V>; i++) r[i] = f(x[i], y[i]);
    return r;
  }
}

// ---------------------------------------------------------------------------------------------- masks
// A comparison of vectors gives lanes as wide as the compared ones: bring them to i32.
template <class M> INLINE auto to_mask(M m) {
  if constexpr (is_scalar<M>) return bool(m);
  else if constexpr (sizeof(element<M>) == 4) return bits_as<mask<lanes<M>>>(m);
  else return __builtin_convertvector(m, mask<lanes<M>>);
}
template <class V> INLINE auto lt(V a, V b) { return to_mask(a < b); }
template <class V> INLINE auto le(V a, V b) { return to_mask(a <= b); }
template <class V> INLINE auto gt(V a, V b) { return to_mask(a > b); }
template <class V> INLINE auto ge(V a, V b) { return to_mask(a >= b); }
template <class V> INLINE auto eq(V a, V b) { return to_mask(a == b); }
template <class V> INLINE auto ne(V a, V b) { return to_mask(a != b); }
template <class V> INLINE auto ordered(V a, V b) { return to_mask((a == a) & (b == b)); }
template <class V> INLINE auto unordered(V a, V b) { return to_mask((a != a) | (b != b)); }
template <class V> INLINE auto ult(V a, V b) {
  using U = like<V, unsigned_of<element<V>>>;
  return lt(bits_as<U>(a), bits_as<U>(b));
}
template <class V> INLINE auto ule(V a, V b) {
  using U = like<V, unsigned_of<element<V>>>;
  return le(bits_as<U>(a), bits_as<U>(b));
}

// The first n lanes true; n may be negative or beyond N.
template <int N> INLINE mask<N> prefix(i64 n) {
  i32 k = n > N ? N : n < 0 ? 0 : i32(n);
  return iota<i32, N>() < k;
}
INLINE bool any(bool m) { return m; }
template <class M> INLINE bool any(M m) {
  i32 r = 0;
  for (int i = 0; i < lanes<M>; i++) r |= m[i];
  return r != 0;
}

template <class C, class V> INLINE V select(C c, V a, V b) {
  if constexpr (same<C, bool>) return c ? a : b;
  else if constexpr (sizeof(element<V>) == 4) return c ? a : b;
  else {
    using M = vec<signed_of<element<V>>, lanes<V>>;
    return __builtin_convertvector(c, M) ? a : b;
  }
}

INLINE bool negate(bool m) { return !m; }
template <class M> INLINE M negate(M m) { return ~m; }
INLINE bool either(bool a, bool b) { return a || b; }
template <class M> INLINE M either(M a, M b) { return a | b; }
template <int N> INLINE mask<N> both(bool c, mask<N> m) { return c ? m : mask<N>{}; }

// A limit along an axis, kept between 0 and the axis' size.
INLINE i64 clamp_limit(i64 limit, i64 size) { return limit < 0 ? 0 : limit > size ? size : limit; }

// ---------------------------------------------------------------------------------------------- integers
template <class T, class V> INLINE auto convert(V x) {
  if constexpr (is_scalar<V>) return T(x);
  else if constexpr (same<T, element<V>>) return x;
  else return __builtin_convertvector(x, vec<T, lanes<V>>);
}
// Zero extension: through the unsigned type of the source.
template <class T, class V> INLINE auto zero_extend(V x) {
  using U = like<V, unsigned_of<element<V>>>;
  return convert<T>(bits_as<U>(x));
}
template <class T, class V> INLINE auto from_unsigned(V x) {
  using U = like<V, unsigned_of<element<V>>>;
  return convert<T>(bits_as<U>(x));
}
// i1 to an integer (sign: 0 or -1; otherwise 0 or 1) and back (the lowest bit).
template <class T, class M> INLINE auto mask_to_signed(M m) {
  if constexpr (same<M, bool>) return T(-T(m)); else return convert<T>(m);
}
template <class T, class M> INLINE auto mask_to_unsigned(M m) {
  if constexpr (same<M, bool>) return T(m); else return convert<T>(m & 1);
}
template <class V> INLINE auto lowest_bit(V x) { return ne(V(x & element<V>(1)), V(x ^ x)); }

// Division never traps: x / 0 is all ones (as on NVIDIA GPUs) and the quotient of MIN / -1 wraps.
template <class V> INLINE V divide(V a, V b) {
  using T = element<V>;
  if constexpr (!is_scalar<V> && sizeof(T) <= 4 && is_signed<T>) {
    // Quotients of 32-bit integers are exact in f64.
    auto q = __builtin_convertvector(a, vec<f64, lanes<V>>) / __builtin_convertvector(b, vec<f64, lanes<V>>);
    auto r = convert<T>(__builtin_convertvector(q, vec<i32, lanes<V>>));
    return (b == T(0)) ? (V{} - T(1)) : r;
  } else {
    return each_lane(a, b, [](T x, T y) -> T {
      if (y == T(0)) return T(-1);
      if (is_signed<T> && y == T(-1)) return T(0) - x;
      return x / y;
    });
  }
}
template <class V> INLINE V remainder(V a, V b) {
  using T = element<V>;
  if constexpr (!is_scalar<V> && sizeof(T) <= 4 && is_signed<T>) {
    return (b == T(0)) ? a : V(a - divide(a, b) * b);
  } else {
    return each_lane(a, b, [](T x, T y) -> T {
      if (y == T(0)) return x;
      if (is_signed<T> && y == T(-1)) return T(0);
      return x % y;
    });
  }
}
template <class V> INLINE V udivide(V a, V b) {
  using U = like<V, unsigned_of<element<V>>>;
  return bits_as<V>(divide(bits_as<U>(a), bits_as<U>(b)));
}
template <class V> INLINE V uremainder(V a, V b) {
  using U = like<V, unsigned_of<element<V>>>;
  return bits_as<V>(remainder(bits_as<U>(a), bits_as<U>(b)));
}
// Division rounding up (ceildivsi) and down (floordivsi).
template <class V> INLINE V floor_divide(V a, V b) {
  V q = divide(a, b);
  return select(to_mask((V(a - q * b) != 0) & ((a < 0) != (b < 0))), V(q - element<V>(1)), q);
}

template <class V> INLINE V ceil_divide(V a, V b) {
  V q = divide(a, b);
  return select(to_mask((V(a - q * b) != 0) & ((a < 0) == (b < 0))), V(q + element<V>(1)), q);
}

// Shifts by the width or more: zero, or the sign (as on NVIDIA GPUs).
template <class V> INLINE V shift_left(V a, V b) {
  using T = element<V>;
  if constexpr (is_scalar<V>) return unsigned_of<T>(b) >= 8 * sizeof(T) ? T(0) : T(unsigned_of<T>(a) << b);
  else return select(ult(b, V{} + T(8 * sizeof(T))), V(a << (b & T(8 * sizeof(T) - 1))), V{});
}
template <class V> INLINE V shift_right_signed(V a, V b) {
  using T = element<V>;
  constexpr T last = 8 * sizeof(T) - 1;
  if constexpr (is_scalar<V>) return a >> (unsigned_of<T>(b) > unsigned_of<T>(last) ? last : b);
  else return a >> select(ule(b, V{} + last), b, V{} + last);
}
template <class V> INLINE V shift_right_unsigned(V a, V b) {
  using T = element<V>;
  using U = like<V, unsigned_of<T>>;
  if constexpr (is_scalar<V>) return unsigned_of<T>(b) >= 8 * sizeof(T) ? T(0) : T(unsigned_of<T>(a) >> b);
  else return select(ult(b, V{} + T(8 * sizeof(T))), bits_as<V>(bits_as<U>(a) >> bits_as<U>(b & T(8 * sizeof(T) - 1))), V{});
}

template <class V> INLINE V smin(V a, V b) { return a < b ? a : b; }
template <class V> INLINE V smax(V a, V b) { return a > b ? a : b; }
template <class V> INLINE V umin(V a, V b) { return select(ult(a, b), a, b); }
template <class V> INLINE V umax(V a, V b) { return select(ult(b, a), a, b); }
template <class V> INLINE V absolute_integer(V x) { return x < 0 ? V(-x) : x; }

// The upper half of the product of two unsigned integers.
template <class V> INLINE V multiply_high(V a, V b) {
  using T = element<V>;
  if constexpr (sizeof(T) == 8) {
    return each_lane(a, b, [](T x, T y) -> T { return T((unsigned __int128)u64(x) * u64(y) >> 64); });
#if HAS_AVX512
  } else if constexpr (!is_scalar<V> && sizeof(V) == 64 && sizeof(T) == 4) {
    using Q = vec<u64, 8>;
    using D = vec<i32, 16>;
    using R = vec<long long, 8>;
    Q even = bits_as<Q>(__builtin_ia32_pmuludq512_mask(bits_as<D>(a), bits_as<D>(b), R{}, (u8)-1));
    Q odd = bits_as<Q>(__builtin_ia32_pmuludq512_mask(bits_as<D>(bits_as<Q>(a) >> 32), bits_as<D>(bits_as<Q>(b) >> 32), R{}, (u8)-1));
    return bits_as<V>((even >> 32) | (odd & ~0xffffffffUL));
#endif
#if HAS_AVX2
  } else if constexpr (!is_scalar<V> && sizeof(V) == 32 && sizeof(T) == 4) {
    using Q = vec<u64, 4>;
    using D = vec<i32, 8>;
    Q even = bits_as<Q>(__builtin_ia32_pmuludq256(bits_as<D>(a), bits_as<D>(b)));
    Q odd = bits_as<Q>(__builtin_ia32_pmuludq256(bits_as<D>(bits_as<Q>(a) >> 32), bits_as<D>(bits_as<Q>(b) >> 32)));
    return bits_as<V>((even >> 32) | (odd & ~0xffffffffUL));
#endif
  } else {
    auto product = zero_extend<u64>(a) * zero_extend<u64>(b);
    return convert<T>(product >> (8 * sizeof(T)));
  }
}

// ---------------------------------------------------------------------------------------------- floats
// Lane-wise maximum as the instruction has it: the second operand when either is NaN.
template <class V> INLINE V raw_max(V a, V b) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_maxps512_mask(a, b, a, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_maxps256(a, b);
#endif
  return a > b ? a : b;
}
template <class V> INLINE V raw_min(V a, V b) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_minps512_mask(a, b, a, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_minps256(a, b);
#endif
  return a < b ? a : b;
}
// maxnum, minnum: the other operand when one is NaN. maximum, minimum: NaN when one is NaN.
template <class V> INLINE V maxnum(V a, V b) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rangeps512_mask(a, b, 5, a, (u16)-1, 4);
#endif
  V r = raw_max(a, b);
  return b != b ? a : r;
}
template <class V> INLINE V minnum(V a, V b) {
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rangeps512_mask(a, b, 4, a, (u16)-1, 4);
#endif
  V r = raw_min(a, b);
  return b != b ? a : r;
}
template <class V> INLINE V maximum(V a, V b) {
  V r = raw_max(a, b);
  return a != a ? a : r;
}
template <class V> INLINE V minimum(V a, V b) {
  V r = raw_min(a, b);
  return a != a ? a : r;
}

template <class V> INLINE V absolute(V x) {
  using T = element<V>;
  using U = like<V, unsigned_of<T>>;
  return bits_as<V>(bits_as<U>(x) & (unsigned_of<T>(-1) >> 1));
}
template <class V> INLINE V copy_sign(V magnitude, V sign) {
  using T = element<V>;
  using U = like<V, unsigned_of<T>>;
  constexpr unsigned_of<T> low = unsigned_of<T>(-1) >> 1;
  return bits_as<V>((bits_as<U>(magnitude) & low) | (bits_as<U>(sign) & ~low));
}

// a * b + c with one rounding.
template <class V> INLINE V fma(V a, V b, V c) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_vfmaddps512_mask(a, b, c, (u16)-1, 4);
  if constexpr (same<V, vec<f64, 8>>) return __builtin_ia32_vfmaddpd512_mask(a, b, c, (u8)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_vfmaddps256(a, b, c);
  if constexpr (same<V, vec<f32, 4>>) return __builtin_ia32_vfmaddps(a, b, c);
  if constexpr (same<V, vec<f64, 4>>) return __builtin_ia32_vfmaddpd256(a, b, c);
#endif
  auto one = [](T x, T y, T z) -> T { if constexpr (same<T, f32>) return __builtin_fmaf(x, y, z); else return __builtin_fma(x, y, z); };
  if constexpr (is_scalar<V>) return one(a, b, c);
  else {
    V r;
    for (int i = 0; i < lanes<V>; i++) r[i] = one(a[i], b[i], c[i]);
    return r;
  }
}

template <class V> INLINE V sqrt(V x) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_sqrtps512_mask(x, x, (u16)-1, 4);
  if constexpr (same<V, vec<f64, 8>>) return __builtin_ia32_sqrtpd512_mask(x, x, (u8)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_sqrtps256(x);
  if constexpr (same<V, vec<f64, 4>>) return __builtin_ia32_sqrtpd256(x);
#endif
  return each_lane(x, [](T y) -> T { if constexpr (same<T, f32>) return __builtin_sqrtf(y); else return __builtin_sqrt(y); });
}
template <class V> INLINE V rsqrt(V x) { return element<V>(1) / sqrt(x); }

template <class V> INLINE V floor(V x) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rndscaleps_mask(x, 9, x, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_roundps256(x, 9);
#endif
  return each_lane(x, [](T y) -> T { if constexpr (same<T, f32>) return __builtin_floorf(y); else return __builtin_floor(y); });
}
template <class V> INLINE V ceil(V x) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rndscaleps_mask(x, 10, x, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_roundps256(x, 10);
#endif
  return each_lane(x, [](T y) -> T { if constexpr (same<T, f32>) return __builtin_ceilf(y); else return __builtin_ceil(y); });
}
template <class V> INLINE V trunc(V x) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rndscaleps_mask(x, 11, x, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_roundps256(x, 11);
#endif
  return each_lane(x, [](T y) -> T { if constexpr (same<T, f32>) return __builtin_truncf(y); else return __builtin_trunc(y); });
}
// Round half to even.
template <class V> INLINE V round_even(V x) {
  using T = element<V>;
#if HAS_AVX512
  if constexpr (same<V, vec<f32, 16>>) return __builtin_ia32_rndscaleps_mask(x, 8, x, (u16)-1, 4);
#endif
#if HAS_AVX2
  if constexpr (same<V, vec<f32, 8>>) return __builtin_ia32_roundps256(x, 8);
#endif
  return each_lane(x, [](T y) -> T { if constexpr (same<T, f32>) return __builtin_rintf(y); else return __builtin_rint(y); });
}

// Truncation to an integer that saturates; NaN gives 0 (as cvt.rzi on NVIDIA GPUs). Narrow integers go through 32 bits.
template <class To, class V> INLINE auto saturate(V x) {
  if constexpr (sizeof(To) < 4) {
    return convert<To>(saturate<narrow_through<To>>(x));
  } else {
    using T = element<V>;
    using R = like<V, To>;
    constexpr To largest = is_signed<To> ? To(unsigned_of<To>(-1) >> 1) : To(-1);
    constexpr To smallest = is_signed<To> ? To(unsigned_of<To>(1) << (8 * sizeof(To) - 1)) : To(0);
    constexpr T limit = T(unsigned_of<To>(1) << (8 * sizeof(To) - 1)) * (is_signed<To> ? T(1) : T(2));
    auto above = ge(x, V(V{} + limit));
    auto below = lt(x, V(V{} + (is_signed<To> ? -limit : T(0))));
    V inside = select(above | below | unordered(x, x), V{}, x);
    R r = convert<To>(inside);
    return select(above, R(R{} + largest), select(below, R(R{} + smallest), r));
  }
}

}  // namespace opgraft
