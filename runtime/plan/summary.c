/* Sums over the instructions of a program. */
#include "runtime/plan/program.h"

static double op_flops(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    double elements = 0;

    if (info->flops != NULL)
        return info->flops(g, op);
    for (int o = 0; o < op->nout; o++)
        if (op->out[o] != TRI_NONE)
            elements += (double)tri_shape_count(&g->value[op->out[o]].shape);
    return elements;
}

static double list_bytes(const struct tri_graph *g, const tri_vid *v, int n)
{
    double bytes = 0;

    for (int i = 0; i < n; i++)
        if (v[i] != TRI_NONE)
            bytes += (double)tri_value_bytes(&g->value[v[i]]);
    return bytes;
}

void tri_plan_cost(const struct tri_program *p, const struct tri_instr *in, double *flops,
                   double *bytes)
{
    const struct tri_op *op = &p->graph->op[in->op];

    if (in->kernel == TRI_NONE) {
        *flops = 0;
        *bytes = list_bytes(p->graph, op->in, 1);
        if (op->attrs.comm.count > 0)
            *bytes = (double)op->attrs.comm.count *
                     (double)tri_dtype_bytes(p->graph->value[op->in[0]].dtype);
        return;
    }
    *flops = op_flops(p->graph, op);
    *bytes = list_bytes(p->graph, op->in, op->nin) + list_bytes(p->graph, op->out, op->nout);
}

void tri_plan_summarise(const struct tri_program *p, struct tri_plan_summary *out)
{
    struct tri_plan_summary s = {0};

    for (int v = 0; v < p->graph->nvalue; v++)
        if (p->graph->value[v].role == TRI_ROLE_PARAM)
            s.params += tri_shape_count(&p->graph->value[v].shape);
    for (int i = 0; i < p->ninstr; i++) {
        enum tri_phase phase = p->graph->op[p->instr[i].op].phase;
        double flops, bytes;

        tri_plan_cost(p, &p->instr[i], &flops, &bytes);
        s.instrs++;
        if (p->instr[i].kernel == TRI_NONE) {
            s.collectives++;
            s.comm_bytes += bytes;
        } else {
            s.flops[phase] += flops;
            s.bytes_touched[phase] += bytes;
        }
    }
    *out = s;
}
