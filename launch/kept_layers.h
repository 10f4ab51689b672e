/* Layers that a run has moved to f32 while it ran (precision.check_action: restore). They count as
 * patterns of precision.keep_fp32, stand in config.yaml among them, and travel in the manifest of
 * every later checkpoint, so that a run that goes on from there compiles the same step on any
 * number of ranks. */
#ifndef TRI_LAUNCH_KEPT_LAYERS_H
#define TRI_LAUNCH_KEPT_LAYERS_H

#include "launch/job.h"

/* A field of the manifest: names of parameters, separated by blanks. Taken over, not compared. */
#define TRI_KEPT_LAYERS_FIELD "kept_fp32"

/* names: of parameters, separated by blanks. Programs compiled from job->spec from now on have
 * their layers in f32; those that are kept already change nothing. Same on all ranks: names.
 * Local. */
tri_status tri_kept_layers_add(struct tri_job *job, const char *names) TRI_CHECKED;
/* Adds those of a checkpoint. Local. */
tri_status tri_kept_layers_resume(struct tri_job *job, const struct tri_checkpoint *c) TRI_CHECKED;

#endif
