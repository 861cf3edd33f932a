// Loads and stores of N lanes: contiguous, masked, gathered and scattered.
#pragma once
#include "convert.h"

namespace opgraft {

template <class T> struct value_type { using type = T; };
template <class T> struct value_type<const T> : value_type<T> {};
template <> struct value_type<bool> { using type = bool; };
template <> struct value_type<f16> { using type = f32; };
template <> struct value_type<bf16> { using type = f32; };
template <> struct value_type<f8e5m2> { using type = f32; };
template <> struct value_type<f8e4m3fn> { using type = f32; };
// What a T in memory is in registers.
template <class T> using value = typename value_type<T>::type;
template <class T> inline constexpr bool is_small_float =
    same<T, f16> || same<T, bf16> || same<T, f8e5m2> || same<T, f8e4m3fn>;
template <class T> struct lane_type { using type = value<T>; };
template <> struct lane_type<bool> { using type = i32; };
template <class T> struct lane_type<T*> { using type = i64; };
template <class T> INLINE T lane_of(T x) { return x; }
template <class T> INLINE i64 lane_of(T* x) { return i64(x); }
// N values of a T in memory: bool becomes mask lanes.
template <class T, int N> using pack = vec<typename lane_type<T>::type, N>;

// ---------------------------------------------------------------------------------------------- scalars
template <class T> INLINE value<T> load(const T* p) {
  if constexpr (is_small_float<T>) {
    typename format<T>::storage bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return format<T>::decode(bits);
  } else if constexpr (same<T, bool>) {
    return *reinterpret_cast<const u8*>(p) != 0;
  } else {
    T r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
  }
}
template <class T> INLINE void store(T* p, value<T> x) {
  if constexpr (is_small_float<T>) {
    auto bits = format<T>::encode(x);
    __builtin_memcpy(p, &bits, sizeof bits);
  } else {
    __builtin_memcpy(p, &x, sizeof x);
  }
}

// ---------------------------------------------------------------------------------------------- contiguous
template <class V, class T> INLINE V read(const T* p) {
  V r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
template <int N, class T> INLINE pack<T, N> load(const T* p) {
  if constexpr (is_pointer<T>) return read<vec<i64, N>>(p);
  else if constexpr (is_small_float<T>) return format<T>::decode(read<vec<typename format<T>::storage, N>>(p));
  else if constexpr (same<T, bool>) return to_mask(read<vec<i8, N>>(p) != 0);
  else return read<vec<T, N>>(p);
}
template <int N, class T> INLINE void store(T* p, pack<T, N> x) {
  if constexpr (is_small_float<T>) {
    auto bits = format<T>::encode(x);
    __builtin_memcpy(p, &bits, sizeof bits);
  } else if constexpr (same<T, bool>) {
    auto bytes = __builtin_convertvector(x & 1, vec<i8, N>);
    __builtin_memcpy(p, &bytes, sizeof bytes);
  } else {
    __builtin_memcpy(p, &x, sizeof x);
  }
}

// ---------------------------------------------------------------------------------------------- masked
#if HAS_AVX512
template <int N> INLINE u16 mask_bits(mask<N> m) {
  if constexpr (N == 16) return __builtin_ia32_cvtd2mask512(m);
  else if constexpr (N == 8) return __builtin_ia32_cvtd2mask256(m);
  else return __builtin_ia32_cvtd2mask128(m);
}
#endif
// Lanes of p where m holds, of other elsewhere; memory of the other lanes is not touched.
template <int N, class S> INLINE vec<S, N> read_masked(const S* p, mask<N> m, vec<S, N> other) {
#if HAS_AVX512
  using I = vec<signed_of<S>, N>;
  auto as = [](auto x) { return bits_as<vec<S, N>>(x); };
  if constexpr (sizeof(S) == 4 && N == 16)
    return as(__builtin_ia32_loadups512_mask((const f32*)p, bits_as<vec<f32, N>>(other), mask_bits<N>(m)));
  else if constexpr (sizeof(S) == 4 && N == 8)
    return as(__builtin_ia32_loadups256_mask((const f32*)p, bits_as<vec<f32, N>>(other), mask_bits<N>(m)));
  else if constexpr (sizeof(S) == 8 && N == 8)
    return as(__builtin_ia32_loadupd512_mask((const f64*)p, bits_as<vec<f64, N>>(other), mask_bits<N>(m)));
  else if constexpr (sizeof(S) == 2 && N == 16)
    return as(__builtin_ia32_loaddquhi256_mask((const i16*)p, bits_as<I>(other), mask_bits<N>(m)));
  else if constexpr (sizeof(S) == 1 && N == 16)
    return as(__builtin_ia32_loaddquqi128_mask((const char*)p, bits_as<vec<char, N>>(other), mask_bits<N>(m)));
  else
#elif HAS_AVX2
  if constexpr (sizeof(S) == 4 && N == 8) {
    auto r = bits_as<vec<S, N>>(__builtin_ia32_maskloadps256((const vec<f32, 8>*)p, m));
    return select(m, r, other);
  } else
#endif
  {
    for (int i = 0; i < N; i++)
      if (m[i]) {
        S x;
        __builtin_memcpy(&x, p + i, sizeof x);
        other[i] = x;
      }
    return other;
  }
}
template <int N, class S> INLINE void write_masked(S* p, vec<S, N> x, mask<N> m) {
#if HAS_AVX512
  if constexpr (sizeof(S) == 4 && N == 16)
    __builtin_ia32_storeups512_mask((f32*)p, bits_as<vec<f32, N>>(x), mask_bits<N>(m));
  else if constexpr (sizeof(S) == 4 && N == 8)
    __builtin_ia32_storeups256_mask((f32*)p, bits_as<vec<f32, N>>(x), mask_bits<N>(m));
  else if constexpr (sizeof(S) == 8 && N == 8)
    __builtin_ia32_storeupd512_mask((f64*)p, bits_as<vec<f64, N>>(x), mask_bits<N>(m));
  else if constexpr (sizeof(S) == 2 && N == 16)
    __builtin_ia32_storedquhi256_mask((i16*)p, bits_as<vec<i16, N>>(x), mask_bits<N>(m));
  else if constexpr (sizeof(S) == 1 && N == 16)
    __builtin_ia32_storedquqi128_mask((char*)p, bits_as<vec<char, N>>(x), mask_bits<N>(m));
  else
#elif HAS_AVX2
  if constexpr (sizeof(S) == 4 && N == 8)
    __builtin_ia32_maskstoreps256((vec<f32, 8>*)p, m, bits_as<vec<f32, 8>>(x));
  else
#endif
    for (int i = 0; i < N; i++)
      if (m[i]) {
        S y = x[i];
        __builtin_memcpy(p + i, &y, sizeof y);
      }
}
template <int N, class T> INLINE pack<T, N> load(const T* p, mask<N> m, pack<T, N> other) {
  if constexpr (is_small_float<T>) {
    using S = typename format<T>::storage;
    return select(m, format<T>::decode(read_masked<N>((const S*)p, m, vec<S, N>{})), other);
  } else if constexpr (same<T, bool>) {
    return select(m, to_mask(read_masked<N>((const i8*)p, m, vec<i8, N>{}) != 0), other);
  } else {
    return read_masked<N>(p, m, other);
  }
}
template <int N, class T> INLINE void store(T* p, pack<T, N> x, mask<N> m) {
  if constexpr (is_small_float<T>) write_masked<N>((typename format<T>::storage*)p, format<T>::encode(x), m);
  else if constexpr (same<T, bool>) write_masked<N>((i8*)p, __builtin_convertvector(x & 1, vec<i8, N>), m);
  else write_masked<N>(p, x, m);
}

// ---------------------------------------------------------------------------------------------- indexed
// Lanes of p[index]; index counts elements.
template <int N, class T, class V> INLINE pack<T, N> gather(const T* p, V index) {
  using I = element<V>;
#if HAS_AVX512
  if constexpr (sizeof(T) == 4 && sizeof(I) == 4 && N == 16)
    return bits_as<pack<T, N>>(__builtin_ia32_gathersiv16sf(vec<f32, 16>{}, p, index, (u16)-1, 4));
#elif HAS_AVX2
  if constexpr (sizeof(T) == 4 && sizeof(I) == 4 && N == 8)
    return bits_as<pack<T, N>>(__builtin_ia32_gathersiv8sf(vec<f32, 8>{}, (const f32*)p, index,
                                                           bits_as<vec<f32, 8>>(splat<8>(-1)), 4));
#endif
  if constexpr (same<T, bool>) {
    mask<N> r;
    for (int i = 0; i < N; i++) r[i] = -i32(load(p + index[i]));
    return r;
  } else if constexpr (is_small_float<T>) {
    vec<typename format<T>::storage, N> bits;
    for (int i = 0; i < N; i++) __builtin_memcpy((char*)&bits + i * sizeof(T), p + index[i], sizeof(T));
    return format<T>::decode(bits);
  } else {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r[i] = load(p + index[i]);
    return r;
  }
}
template <int N, class T, class V>
INLINE pack<T, N> gather(const T* p, V index, mask<N> m, pack<T, N> other) {
  using I = element<V>;
#if HAS_AVX512
  if constexpr (sizeof(T) == 4 && sizeof(I) == 4 && N == 16)
    return bits_as<pack<T, N>>(
        __builtin_ia32_gathersiv16sf(bits_as<vec<f32, 16>>(other), p, index, mask_bits<N>(m), 4));
#elif HAS_AVX2
  if constexpr (sizeof(T) == 4 && sizeof(I) == 4 && N == 8)
    return bits_as<pack<T, N>>(__builtin_ia32_gathersiv8sf(bits_as<vec<f32, 8>>(other), (const f32*)p, index,
                                                           bits_as<vec<f32, 8>>(m), 4));
#endif
  for (int i = 0; i < N; i++)
    if (m[i]) {
      if constexpr (same<T, bool>) other[i] = -i32(load(p + index[i]));
      else other[i] = load(p + index[i]);
    }
  return other;
}
template <int N, class T, class V> INLINE void scatter(T* p, V index, pack<T, N> x) {
  for (int i = 0; i < N; i++) {
    if constexpr (same<T, bool>) store(p + index[i], x[i] != 0);
    else store(p + index[i], x[i]);
  }
}
template <int N, class T, class V> INLINE void scatter(T* p, V index, pack<T, N> x, mask<N> m) {
  for (int i = 0; i < N; i++)
    if (m[i]) {
      if constexpr (same<T, bool>) store(p + index[i], x[i] != 0);
      else store(p + index[i], x[i]);
    }
}
// The same over lanes that hold whole addresses; the pointer only tells the type.
template <int N, class T> INLINE pack<T, N> gather_addresses(const T*, vec<i64, N> address, mask<N> m, pack<T, N> other) {
  for (int i = 0; i < N; i++)
    if (m[i]) {
      if constexpr (same<T, bool>) other[i] = -i32(load(reinterpret_cast<const T*>(address[i])));
      else other[i] = lane_of(load(reinterpret_cast<const T*>(address[i])));
    }
  return other;
}
template <int N, class T> INLINE pack<T, N> gather_addresses(const T* p, vec<i64, N> address) {
  return gather_addresses<N>(p, address, splat_mask<N>(true), pack<T, N>{});
}
template <int N, class T> INLINE void scatter_addresses(T*, vec<i64, N> address, pack<T, N> x, mask<N> m) {
  for (int i = 0; i < N; i++)
    if (m[i]) {
      if constexpr (same<T, bool>) store(reinterpret_cast<T*>(address[i]), x[i] != 0);
      else store(reinterpret_cast<T*>(address[i]), x[i]);
    }
}
template <int N, class T> INLINE void scatter_addresses(T* p, vec<i64, N> address, pack<T, N> x) {
  scatter_addresses<N>(p, address, x, splat_mask<N>(true));
}
template <class T> INLINE T* at(i64 address) { return reinterpret_cast<T*>(address); }

}  // namespace opgraft
