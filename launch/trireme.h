/* Trireme for programs: the public headers in one.
 *
 *     cc $(pkg-config --cflags trireme) -c own.c
 *     cc own.o $(pkg-config --libs trireme)          (mpicc where the program calls MPI)
 *
 * Three ways to embed:
 *
 * 1. Train a model of your own on all ranks: write its forward pass with models/builder.h, hand it
 *    to launch/run.h. That header's comment shows the calls; tests/embed/own_model.c is a whole
 *    program.
 *
 * 2. Keep your own model, backward pass and MPI, and let Trireme average the gradients while you
 *    compute. This one header names MPI_Comm, so that it is not included here:
 *
 *     #include <optim/exchange.h>
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     tri_exchange_create(MPI_COMM_WORLD, "gradient.bucket_mb=4", &x);
 *     for (i = 0; i < nparams; i++)
 *         tri_exchange_register(x, name[i], grad[i], count[i], TRI_F32, &id[i]);
 *     tri_exchange_commit(x);
 *     for (step = 0; step < steps; step++) {
 *         for (i = nparams - 1; i >= 0; i--) {
 *             backward(i);
 *             tri_exchange_ready(x, id[i]);
 *         }
 *         tri_exchange_wait(x);
 *         update();
 *     }
 *     tri_exchange_destroy(x);
 *
 * 3. Assemble the parts yourself: passes and compilation (launch/compile.h), memory and execution
 *    (launch/session.h, runtime/exec/exec.h), communicators (collectives/world.h), data
 *    (data/loader.h), checkpoints (runtime/checkpoint/checkpoint.h).
 *
 * Functions that can fail return a tri_status, TRI_OK or a code; tri_error_text() has the message.
 * "Collective." in a comment: all ranks call it, in the same order. "Local.": no rank waits for
 * another. Nothing here ends the process, writes to standard output or starts MPI. */
#ifndef TRI_TRIREME_H
#define TRI_TRIREME_H

#include "collectives/world.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "launch/compile.h"
#include "launch/run.h"
#include "launch/session.h"
#include "models/builder.h"
#include "models/init.h"
#include "models/model.h"
#include "models/model_options.h"
#include "optim/exchange_pass.h"
#include "optim/groups.h"
#include "optim/optim_options.h"
#include "optim/update_pass.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/core/dtype.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/options.h"
#include "runtime/core/rng.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"
#include "runtime/exec/comm.h"
#include "runtime/exec/exec.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/ops.h"
#include "runtime/graph/passes.h"
#include "runtime/graph/shape.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/program.h"

#endif
