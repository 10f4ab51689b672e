/* 16-bit arguments for kernels that know f32 only: operands are widened in planned scratch, the
 * f32 kernel runs, and each 16-bit result is rounded once. */
#ifndef TRI_RUNTIME_KERNELS_WIDEN_H
#define TRI_RUNTIME_KERNELS_WIDEN_H

#include "runtime/kernels/kernels.h"

#include <stdbool.h>

TRI_BEGIN_DECLS

/* Some present argument of d is bf16 or f16 and the reference kernel of the kind does not read that
 * type itself. Local. */
bool tri_kernel_needs_widening(const struct tri_kernel_desc *d);

/* A kernel for d around the f32 kernel of the same kind from `table` (or the reference). A value
 * beyond the f16 range becomes infinite. Class: that of the f32 kernel, then half a unit in the
 * last place of the stored type. Local. */
tri_status tri_kernel_prepare_widened(const struct tri_kernel_ops *const *table,
                                      const struct tri_kernel_desc *d,
                                      struct tri_kernel **out) TRI_CHECKED;

TRI_END_DECLS
#endif
