#include "runtime/graph/ops_check.h"

const struct tri_op_info *tri_op_info(enum tri_op_kind kind)
{
    static const struct tri_op_info *const row[TRI_OP_COUNT] = {
#define X(kind, text) [TRI_OP_##kind] = &tri_op_row_##kind,
        TRI_OP_LIST(X)
#undef X
    };

    TRI_ASSERT((unsigned)kind < TRI_OP_COUNT);
    return row[kind];
}

const char *tri_op_name(enum tri_op_kind kind)
{
    static const char *const name[TRI_OP_COUNT] = {
#define X(kind, text) [TRI_OP_##kind] = text,
        TRI_OP_LIST(X)
#undef X
    };

    return (unsigned)kind < TRI_OP_COUNT ? name[kind] : "unknown";
}

const char *tri_phase_name(enum tri_phase phase)
{
    static const char *const name[TRI_PHASE_COUNT] = {
        [TRI_PHASE_FORWARD] = "forward",
        [TRI_PHASE_BACKWARD] = "backward",
        [TRI_PHASE_EXCHANGE] = "exchange",
        [TRI_PHASE_UPDATE] = "update",
    };

    return (unsigned)phase < TRI_PHASE_COUNT ? name[phase] : "unknown";
}
