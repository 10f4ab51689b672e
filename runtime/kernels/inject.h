/* Faults of a process on purpose (debug.inject), shared by the INJECT kernel and by the trainer. */
#ifndef TRI_RUNTIME_KERNELS_INJECT_H
#define TRI_RUNTIME_KERNELS_INJECT_H

#include "runtime/graph/ops.h"

TRI_BEGIN_DECLS

/* kill, stop, segv: raises the signal; exit: leaves at once with `code`; sleep: pauses for `ms`.
 * Other faults are of values and do nothing here. Ending the process is what the user asked for.
 * Local. */
void tri_inject_process(enum tri_inject_what what, int ms, int code);

TRI_END_DECLS
#endif
