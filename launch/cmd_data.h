/* `trireme data`: importers and the report on dataset files. */
#ifndef TRI_LAUNCH_CMD_DATA_H
#define TRI_LAUNCH_CMD_DATA_H

#include "runtime/core/status.h"

/* argv[0] is the word after `data` ("import", "info", "--help"). Results go to standard output; a
 * wrong command line is TRI_ERR_USAGE with a message that says what is missing. Local. */
tri_status tri_cmd_data(int argc, char **argv) TRI_CHECKED;

#endif
