// fp16, bf16 and fp8: types in memory, f32 in registers. Rounding is to nearest, ties to even.
//
// Overflow gives infinity for fp16 and bf16, and the largest finite value for fp8 (as cvt.satfinite on NVIDIA GPUs).
#pragma once
#include "vector.h"

namespace opgraft {

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e5m2 { u8 bits; };
struct f8e4m3fn { u8 bits; };

// The bits of a small float with E exponent and M mantissa bits, without sign, of a non-NaN |x| below overflow.
template <int E, int M, class V> INLINE auto small_float_bits(V magnitude) {
  using I = like<V, i32>;
  constexpr int bias = (1 << (E - 1)) - 1;
  I bits = bits_as<I>(magnitude);
  I odd = (bits >> (23 - M)) & 1;
  I normal = ((bits + ((1 << (22 - M)) - 1) + odd) >> (23 - M)) - ((127 - bias) << M);
  // Subnormal: an addition aligns the last bit that stays with the last bit of f32.
  constexpr f32 align = __builtin_bit_cast(f32, (127 + 23 - M + 1 - bias) << 23);
  I subnormal = bits_as<I>(V(magnitude + align)) - bits_as<I>(V(V{} + align));
  constexpr f32 smallest_normal = __builtin_bit_cast(f32, (127 + 1 - bias) << 23);
  return select(lt(magnitude, V(V{} + smallest_normal)), subnormal, normal);
}
template <int E, int M, class I> INLINE auto small_float_value(I magnitude) {  // no infinity, no NaN
  constexpr int bias = (1 << (E - 1)) - 1;
  constexpr f32 scale = __builtin_bit_cast(f32, (127 + 127 - bias) << 23);
  return bits_as<like<I, f32>>(I(magnitude << (23 - M))) * scale;
}

template <class T> struct format;

template <> struct format<f16> {
  using storage = u16;
  template <class V> static INLINE auto decode(V bits) {
#if HAS_AVX512
    if constexpr (same<V, vec<u16, 16>>)
      return __builtin_ia32_vcvtph2ps512_mask(bits_as<vec<i16, 16>>(bits), vec<f32, 16>{}, (u16)-1, 4);
    else
#endif
#if HAS_AVX2
    if constexpr (same<V, vec<u16, 8>>) return __builtin_ia32_vcvtph2ps256(bits_as<vec<i16, 8>>(bits));
    else
#endif
    {
      auto w = convert<i32>(bits);
      auto magnitude = w & 0x7fff;
      auto value = small_float_value<5, 10>(magnitude);
      using F = __typeof__(value);
      auto special = bits_as<F>((magnitude << 13) | 0x7f800000);
      value = select(ge(magnitude, fill(magnitude, 0x7c00)), special, value);
      return bits_as<F>(bits_as<__typeof__(w)>(value) | ((w & 0x8000) << 16));
    }
  }
  template <class V> static INLINE auto encode(V x) {
#if HAS_AVX512
    if constexpr (same<V, vec<f32, 16>>)
      return bits_as<vec<u16, 16>>(__builtin_ia32_vcvtps2ph512_mask(x, 8, vec<i16, 16>{}, (u16)-1));
    else
#endif
#if HAS_AVX2
    if constexpr (same<V, vec<f32, 8>>) return bits_as<vec<u16, 8>>(__builtin_ia32_vcvtps2ph256(x, 8));
    else
#endif
    {
      using I = like<V, i32>;
      V magnitude = absolute(x);
      I bits = small_float_bits<5, 10>(magnitude);
      bits = select(ge(magnitude, V(V{} + 65520.0f)), I(I{} + 0x7c00), bits);
      bits = select(unordered(x, x), I(I{} + 0x7e00), bits);
      return convert<u16>(I(bits | ((bits_as<I>(x) >> 16) & 0x8000)));
    }
  }
};

template <> struct format<bf16> {
  using storage = u16;
  template <class V> static INLINE auto decode(V bits) {
    using F = like<V, f32>;
    return bits_as<F>(convert<u32>(bits) << 16);
  }
  template <class V> static INLINE auto encode(V x) {
    using I = like<V, u32>;
    I bits = bits_as<I>(x);
    I rounded = (bits + (0x7fff + ((bits >> 16) & 1))) >> 16;
    return convert<u16>(select(unordered(x, x), I((bits >> 16) | 0x40), rounded));
  }
};

template <> struct format<f8e5m2> {
  using storage = u8;
  template <class V> static INLINE auto decode(V bits) { return format<f16>::decode(convert<u16>(bits) << 8); }
  static INLINE f32 decode(u8 bits) { return format<f16>::decode(u16(bits << 8)); }
  template <class V> static INLINE auto encode(V x) {
    using I = like<V, i32>;
    V magnitude = raw_min(V(V{} + 57344.0f), absolute(x));
    I bits = select(unordered(x, x), I(I{} + 0x7f), I(small_float_bits<5, 2>(magnitude)));
    return convert<u8>(I(bits | ((bits_as<I>(x) >> 24) & 0x80)));
  }
};

template <> struct format<f8e4m3fn> {
  using storage = u8;
  template <class V> static INLINE auto decode(V bits) {
    auto w = convert<i32>(bits);
    auto magnitude = w & 0x7f;
    auto value = small_float_value<4, 3>(magnitude);
    using F = __typeof__(value);
    value = select(eq(magnitude, fill(magnitude, 0x7f)), F(F{} + __builtin_nanf("")), value);
    return bits_as<F>(bits_as<__typeof__(w)>(value) | ((w & 0x80) << 24));
  }
  template <class V> static INLINE auto encode(V x) {
    using I = like<V, i32>;
    V magnitude = raw_min(V(V{} + 448.0f), absolute(x));
    I bits = select(unordered(x, x), I(I{} + 0x7f), I(small_float_bits<4, 3>(magnitude)));
    return convert<u8>(I(bits | ((bits_as<I>(x) >> 24) & 0x80)));
  }
};

// Round f32 lanes to what the format can hold.
template <class T, class V> INLINE V round_to(V x) { return format<T>::decode(format<T>::encode(x)); }

// The bits of a value of the format, as a signed integer, and back.
template <class T, class V> INLINE auto to_bits(V x) {
  auto bits = format<T>::encode(x);
  return bits_as<like<V, signed_of<typename format<T>::storage>>>(bits);
}
template <class T, class V> INLINE auto from_bits(V bits) {
  return format<T>::decode(bits_as<like<V, typename format<T>::storage>>(bits));
}

// f64 to f32 rounded to odd: rounding the result again to a narrower format is then exact.
template <class V> INLINE auto narrow_to_odd(V x) {
  using F = like<V, f32>;
  auto one = [](f64 y) -> f32 {
    f32 r = f32(y);
    f64 back = f64(r);
    if (back == y || y != y || r == r + r) return r;
    u32 bits = __builtin_bit_cast(u32, r);
    if ((back > y) == (y > 0)) bits -= 1;  // towards zero
    return __builtin_bit_cast(f32, bits | 1);
  };
  if constexpr (is_scalar<V>) return one(x);
  else {
    F r;
    for (int i = 0; i < lanes<V>; i++) r[i] = one(x[i]);
    return r;
  }
}

}  // namespace opgraft
