/* The arithmetic of reductions: element-wise sums, minima and maxima of two or many buffers.
 *
 * f32, f64, i32, i64 work in their own type. bf16 and f16 are widened to f32, reduced, and rounded
 * once. The sum over many buffers is the binary tree that halves [0, n): ((0+1)+(2+3))+..., element
 * by element, whatever the blocking. A NaN on any side of a minimum or maximum is the result. */
#ifndef TRI_COLLECTIVES_REDUCE_H
#define TRI_COLLECTIVES_REDUCE_H

#include "collectives/rounds.h"
#include "runtime/core/dtype.h"
#include "runtime/exec/comm.h"

/* The type in which `dtype` is reduced: f32 for bf16 and f16, else itself. Local. */
enum tri_dtype tri_reduce_dtype(enum tri_dtype dtype);

/* The function for a type of tri_reduce_dtype(); TRI_ERR_UNSUPPORTED names the type (u8). Local. */
tri_status tri_reduce_find(enum tri_dtype dtype, enum tri_reduce op,
                           tri_reduce_fn **out) TRI_CHECKED;

/* TRI_ERR_USAGE for a fixed-tree sum over `size` ranks that are no power of two. Local. */
tri_status tri_reduce_check_tree(int size, bool fixed_tree) TRI_CHECKED;

/* to[] = the reduction of from[0..n-1] over elements [first, first + count), for each of the nto
 * destinations; they may be the sources themselves. `dtype` as stored. n, nto >= 1. Local. */
tri_status tri_reduce_many(void *const *to, int nto, const void *const *from, int n, int64_t first,
                           int64_t count, enum tri_dtype dtype, enum tri_reduce op) TRI_CHECKED;

/* Conversions between the stored type and f32: bf16 and f16 only. Local. */
void tri_reduce_widen(float *dst, const void *src, int64_t count, enum tri_dtype dtype);
void tri_reduce_narrow(void *dst, const float *src, int64_t count, enum tri_dtype dtype);

#endif
