/* The real types lie here; ours lie with the calls. */
#include "cuda_runtime_api.h"
