/* Saves behind the back of training: what this rank owns is copied, and a thread of the saver
 * writes the copy.
 *
 * One save is under way at a time; the next one waits for it. The copy is as large as what the rank
 * owns and is kept for the next save. */
#ifndef TRI_RUNTIME_CHECKPOINT_SAVER_H
#define TRI_RUNTIME_CHECKPOINT_SAVER_H

#include "runtime/checkpoint/checkpoint.h"

TRI_BEGIN_DECLS

struct tri_saver;

/* comm is borrowed, and nothing else may use it until destroy: a duplicate for this purpose. NULL:
 * one rank. Local. */
tri_status tri_saver_create(struct tri_comm *comm, struct tri_saver **out) TRI_CHECKED;
/* Waits for the save under way, whose failure is returned (the new one is not begun then), copies
 * everything in `save` except the probe's argument, and begins. The I/O thread must run.
 * Collective. Same on all ranks: as tri_checkpoint_save. */
tri_status tri_saver_begin(struct tri_saver *s, const struct tri_checkpoint_save *save) TRI_CHECKED;
/* Waits for the save under way and returns its status, the same on all ranks; TRI_OK when there is
 * none. Collective. */
tri_status tri_saver_wait(struct tri_saver *s) TRI_CHECKED;
/* Waits; a failure becomes a warning. NULL is fine. Collective. */
void tri_saver_destroy(struct tri_saver *s);

TRI_END_DECLS
#endif
