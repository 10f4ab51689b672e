/* .npy: "\x93NUMPY", version, length of a header that is a Python dictionary, the header, the
 * elements. */
#include "data/npy.h"

#include "runtime/core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tri_status map_file(const char *path, struct tri_npy *n)
{
    int fd = open(path, O_RDONLY);
    struct stat sb;

    if (fd < 0)
        return tri_fail(TRI_ERR_DATA, "'%s': cannot open: %s", path, strerror(errno));
    if (fstat(fd, &sb) != 0 || sb.st_size < 12) {
        close(fd);
        return tri_fail(TRI_ERR_DATA, "'%s': is too short for a .npy file", path);
    }
    n->map = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (n->map == MAP_FAILED) {
        n->map = NULL;
        return tri_fail(TRI_ERR_DATA, "'%s': cannot map: %s", path, strerror(errno));
    }
    n->map_bytes = (size_t)sb.st_size;
    return TRI_OK;
}

/* The text after "'key':", without leading blanks, or NULL. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];
    const char *p;

    snprintf(quoted, sizeof(quoted), "'%s':", key);
    p = strstr(header, quoted);
    if (p == NULL)
        return NULL;
    p += strlen(quoted);
    while (*p == ' ')
        p++;
    return p;
}

/* "'<f4'" and the like. */
static tri_status parse_descr(const char *p, struct tri_npy *n)
{
    unsigned long bytes;
    char *end;

    if (p == NULL || p[0] != '\'' || strchr("<>|=", p[1]) == NULL || p[1] == '\0')
        return tri_fail(TRI_ERR_DATA, "'%s': element type must be a plain integer or float",
                        n->path);
    n->big_endian = p[1] == '>';
    n->kind = p[2] == 'b' ? 'u' : p[2];
    bytes = strtoul(p + 3, &end, 10);
    if (*end != '\'' || strchr("uif", n->kind) == NULL || n->kind == '\0' ||
        !(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) || (n->kind == 'f' && bytes == 1))
        return tri_fail(TRI_ERR_DATA,
                        "'%s': element type %.8s is not supported, must be an integer or float",
                        n->path, p);
    n->elem_bytes = bytes;
    return TRI_OK;
}

/* "(60000, 28, 28)" */
static tri_status parse_shape(const char *p, struct tri_npy *n)
{
    size_t count = 1;

    if (p == NULL || *p != '(')
        return tri_fail(TRI_ERR_DATA, "'%s': the header has no shape", n->path);
    for (p++; *p != ')';) {
        char *end;
        long long v = strtoll(p, &end, 10);

        if (end == p || v < 0 || n->rank > TRI_DATA_MAX_RANK)
            return tri_fail(TRI_ERR_DATA, "'%s': cannot read the shape of the header", n->path);
        if (v > 0 && count > n->map_bytes / (size_t)v)
            return tri_fail(TRI_ERR_DATA,
                            "'%s': the header's shape has more elements than the file", n->path);
        n->dims[n->rank++] = v;
        count *= (size_t)v;
        for (p = end; *p == ',' || *p == ' '; p++)
            ;
    }
    return tri_mul_size(count, n->elem_bytes, n->path, &n->data_bytes);
}

static tri_status parse_header(const char *header, size_t data_at, struct tri_npy *n)
{
    const char *order = value_of(header, "fortran_order");

    TRI_TRY(parse_descr(value_of(header, "descr"), n));
    TRI_TRY(parse_shape(value_of(header, "shape"), n));
    if (order == NULL || (strncmp(order, "False", 5) != 0 && n->rank > 1))
        return tri_fail(TRI_ERR_DATA, "'%s': is in Fortran order, save numpy.ascontiguousarray(a)",
                        n->path);
    if (n->rank == 0)
        return tri_fail(TRI_ERR_DATA, "'%s': is a scalar, must have rows", n->path);
    if (n->map_bytes - data_at != n->data_bytes)
        return tri_fail(TRI_ERR_DATA, "'%s': holds %zu bytes of elements, the header says %zu",
                        n->path, n->map_bytes - data_at, n->data_bytes);
    n->data = (const char *)n->map + data_at;
    return TRI_OK;
}

static tri_status parse(struct tri_npy *n)
{
    const uint8_t *b = n->map;
    size_t len, at;
    char *header;
    tri_status st;

    if (memcmp(b, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
        return tri_fail(TRI_ERR_DATA, "'%s': is not a .npy file", n->path);
    at = b[6] == 1 ? 10 : 12;
    len = (size_t)b[8] | (size_t)b[9] << 8;
    if (b[6] > 1)
        len |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (n->map_bytes < at || len > n->map_bytes - at)
        return tri_fail(TRI_ERR_DATA, "'%s': ends within its header", n->path);
    header = tri_calloc(len + 1, 1, "npy header");
    if (header == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory for its header", n->path);
    memcpy(header, b + at, len);
    st = parse_header(header, at + len, n);
    tri_free(header);
    return st;
}

tri_status tri_npy_open(const char *path, struct tri_npy *n)
{
    tri_status st;

    *n = (struct tri_npy){.path = path};
    TRI_TRY(map_file(path, n));
    st = parse(n);
    if (st != TRI_OK)
        tri_npy_close(n);
    return st;
}

void tri_npy_close(struct tri_npy *n)
{
    if (n->map != NULL)
        munmap(n->map, n->map_bytes);
    *n = (struct tri_npy){0};
}
