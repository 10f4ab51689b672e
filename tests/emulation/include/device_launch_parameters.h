/* threadIdx and its like come with the kernels. */
#include "cuda_runtime.h"
