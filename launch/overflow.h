/* Reports of steps whose gradient was not finite: who, what, and how large the rest was. */
#ifndef TRI_LAUNCH_OVERFLOW_H
#define TRI_LAUNCH_OVERFLOW_H

#include "launch/session.h"
#include "runtime/core/text.h"

/* Appends "the gradient of 'P' on rank R is not finite" and, in powers of two, how many elements of
 * the summed gradient of P have which size (as they are, with the loss scale in them). P is the
 * first parameter in the order of backward that some rank's own total was not finite for, R the
 * lowest of its ranks; where all totals were finite the sum over ranks overflowed, or the loss
 * itself is not finite, and the text says so. Call it before the next step begins. Same text on all
 * ranks but for the counts. Collective. */
tri_status tri_overflow_report(const struct tri_session *s, struct tri_comm *comm,
                               struct tri_text *out) TRI_CHECKED;

#endif
