// c[M, N] += a[M, K] * b[K, N], row-major with given row strides, blocked for registers.
#pragma once
#include "memory.h"

namespace opgraft {

#if HAS_AVX512
constexpr int dot_bytes = 64, dot_rows = 6, dot_vectors = 4;
#elif HAS_AVX2
constexpr int dot_bytes = 32, dot_rows = 6, dot_vectors = 2;
#else
constexpr int dot_bytes = 16, dot_rows = 4, dot_vectors = 2;
#endif

// R rows times C vectors of W lanes stay in registers while k runs.
template <int R, int C, int W, int K, class A, class B, class T>
INLINE void dot_block(const A* a, i64 lda, const B* b, i64 ldb, T* c, i64 ldc) {
  vec<T, W> acc[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < C; v++) acc[r][v] = read<vec<T, W>>(c + r * ldc + v * W);
#pragma GCC unroll 1
  for (int k = 0; k < K; k++) {
    vec<T, W> row[C];
#pragma GCC unroll 16
    for (int v = 0; v < C; v++) row[v] = convert<T>(read<vec<B, W>>(b + k * ldb + v * W));
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const vec<T, W> x = splat<W>(T(a[r * lda + k]));
#pragma GCC unroll 16
      for (int v = 0; v < C; v++) acc[r][v] += x * row[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < C; v++) store<W>(c + r * ldc + v * W, acc[r][v]);
}

template <int M, int N, int K, class A, class B, class T>
__attribute__((noinline)) static void dot(const A* a, i64 lda, const B* b, i64 ldb, T* c, i64 ldc) {
  constexpr int widest = dot_bytes / int(sizeof(T));
  constexpr int W = N < widest ? N : widest;
  constexpr int C = N / W < dot_vectors ? N / W : dot_vectors;
  constexpr int R = M < dot_rows ? M : dot_rows;
  for (int n = 0; n < N; n += C * W) {
    int m = 0;
    for (; m + R <= M; m += R) dot_block<R, C, W, K>(a + m * lda, lda, b + n, ldb, c + m * ldc + n, ldc);
    if constexpr (M % R != 0) dot_block<M % R, C, W, K>(a + m * lda, lda, b + n, ldb, c + m * ldc + n, ldc);
  }
}

}  // namespace opgraft
