/* Log lines on standard error: "[rank 2] warn: ..." . error, warn, info: per run; debug: per
 * object; trace: per step. */
#ifndef TRI_RUNTIME_CORE_LOG_H
#define TRI_RUNTIME_CORE_LOG_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

enum tri_log_level { TRI_LOG_ERROR, TRI_LOG_WARN, TRI_LOG_INFO, TRI_LOG_DEBUG, TRI_LOG_TRACE };

/* rank < 0 prints no rank. Lines above `level` are dropped. Local; call before threads start. */
void tri_log_init(int rank, enum tri_log_level level);
bool tri_log_enabled(enum tri_log_level level);
void tri_log(enum tri_log_level level, const char *fmt, ...) TRI_PRINTF(2, 3);

#define tri_warn(...)  tri_log(TRI_LOG_WARN, __VA_ARGS__)
#define tri_info(...)  tri_log(TRI_LOG_INFO, __VA_ARGS__)
#define tri_debug(...) tri_log(TRI_LOG_DEBUG, __VA_ARGS__)

/* Monotonic clock in nanoseconds. Local. */
int64_t tri_now_ns(void);

TRI_END_DECLS
#endif
