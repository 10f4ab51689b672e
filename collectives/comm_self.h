/* The communicator of one rank. */
#ifndef TRI_COLLECTIVES_COMM_SELF_H
#define TRI_COLLECTIVES_COMM_SELF_H

#include "runtime/exec/comm.h"

/* name is copied. Local. */
tri_status tri_comm_self_create(const char *name, struct tri_comm **out) TRI_CHECKED;

#endif
