/* Convolutions of 1x1 windows with stride 1 and no padding as matrix products over the pixels. */
#ifndef TRI_RUNTIME_KERNELS_CPU_CONV_PRODUCT_H
#define TRI_RUNTIME_KERNELS_CPU_CONV_PRODUCT_H

#include "runtime/kernels/kernels.h"

/* Prepares a CONV2D without bias, CONV2D_DX or CONV2D_DW of f32 whose window is 1x1, stride 1, no
 * padding. Errors: NOMEM. Local. */
tri_status tri_conv_product_prepare(const struct tri_kernel_desc *d,
                                    struct tri_kernel **out) TRI_CHECKED;

#endif
