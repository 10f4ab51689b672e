/* The vector types of CUDA: small structs with the alignment that the real ones have. */
#ifndef TRI_EMULATION_VECTOR_TYPES_H
#define TRI_EMULATION_VECTOR_TYPES_H

/* A vector type of n = 1..4 components; `align` in bytes for the ones that 16-byte loads use. */
#define EMU_VECTOR(name, type, align2, align4)                                                     \
    struct name##1                                                                                 \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct __attribute__((aligned(align2))) name##2                                                \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct __attribute__((aligned(align4))) name##4                                                \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4

EMU_VECTOR(char, signed char, 2, 4);
EMU_VECTOR(uchar, unsigned char, 2, 4);
EMU_VECTOR(short, short, 4, 8);
EMU_VECTOR(ushort, unsigned short, 4, 8);
EMU_VECTOR(int, int, 8, 16);
EMU_VECTOR(uint, unsigned int, 8, 16);
EMU_VECTOR(float, float, 8, 16);
EMU_VECTOR(double, double, 16, 16);
EMU_VECTOR(longlong, long long, 16, 16);
EMU_VECTOR(ulonglong, unsigned long long, 16, 16);
#undef EMU_VECTOR

struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
#endif
};
typedef struct dim3 dim3;

#endif
