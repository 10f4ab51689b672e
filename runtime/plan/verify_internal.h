/* The parts of verify. Each one checks what its comment says and nothing that an earlier one has
 * checked. */
#ifndef TRI_RUNTIME_PLAN_VERIFY_INTERNAL_H
#define TRI_RUNTIME_PLAN_VERIFY_INTERNAL_H

#include "runtime/plan/program.h"

/* By instruction: how many instructions of each stream are certainly complete when it starts,
 * itself not counted. */
typedef uint32_t tri_clock[TRI_STREAM_COUNT];

/* Instruction i's op name for messages. */
const char *tri_instr_name(const struct tri_program *p, int32_t i);
/* Value v's name for messages. */
const char *tri_value_name(const struct tri_program *p, tri_vid v);

/* Memory: places inside arenas and consistent with ops that move no data; every read finds the
 * bytes of the value it means; every conflict between streams is ordered by a wait. `clock` has
 * ninstr entries. */
tri_status tri_verify_memory(const struct tri_program *p, tri_clock *clock) TRI_CHECKED;

#endif
