/* Operations of a warp: shuffles, votes, reductions. */
#ifndef TRI_EMULATION_WARP_H
#define TRI_EMULATION_WARP_H

#include "emulation/kernel.h"

namespace emu
{

template <class T> struct Shuffle {
    T in, out;
    int source; /* lane */
};

template <class T> void shuffle(unsigned lanes, void *const *operand)
{
    for (int l = 0; l < 32; l++) {
        if (lanes >> l & 1) {
            Shuffle<T> *o = static_cast<Shuffle<T> *>(operand[l]);
            /* A lane that is not there hands out an undefined value. */
            if (lanes >> o->source & 1)
                o->out = static_cast<Shuffle<T> *>(operand[o->source])->in;
            else
                __builtin_memset(static_cast<void *>(&o->out), 0xff, sizeof(T));
        }
    }
}

template <class T> inline T exchange(unsigned mask, T value, int source, Site site)
{
    Shuffle<T> o = {value, value, source};

    meet(mask, &o, shuffle<T>, site);
    return o.out;
}

struct Vote {
    unsigned in, out;
};

template <class F> inline unsigned vote(unsigned mask, unsigned in, F, Site site)
{
    Vote o = {in, 0};

    meet(
        mask, &o,
        [](unsigned lanes, void *const *operand) {
            F::all(lanes, reinterpret_cast<Vote *const *>(operand));
        },
        site);
    return o.out;
}

struct Ballot {
    static void all(unsigned lanes, Vote *const *v)
    {
        unsigned bits = 0;

        for (int l = 0; l < 32; l++)
            bits |= (lanes >> l & 1) && v[l]->in ? 1u << l : 0;
        for (int l = 0; l < 32; l++)
            if (lanes >> l & 1)
                v[l]->out = bits;
    }
};

/* Each lane gets the lanes whose value equals its own. */
struct Match {
    static void all(unsigned lanes, Vote *const *v)
    {
        for (int l = 0; l < 32; l++)
            for (int k = 0; k < 32; k++)
                if ((lanes >> l & 1) && (lanes >> k & 1) && v[k]->in == v[l]->in)
                    v[l]->out |= 1u << k;
    }
};

/* v = op(v, w) over the lanes, in rising order. */
template <class Op> struct Reduce {
    static void all(unsigned lanes, Vote *const *v)
    {
        unsigned sum = 0;
        bool first = true;

        for (int l = 0; l < 32; l++) {
            if (lanes >> l & 1) {
                sum = first ? v[l]->in : Op::of(sum, v[l]->in);
                first = false;
            }
        }
        for (int l = 0; l < 32; l++)
            if (lanes >> l & 1)
                v[l]->out = sum;
    }
};
struct Add {
    static unsigned of(unsigned a, unsigned b)
    {
        return a + b;
    }
};
struct And {
    static unsigned of(unsigned a, unsigned b)
    {
        return a & b;
    }
};
struct Or {
    static unsigned of(unsigned a, unsigned b)
    {
        return a | b;
    }
};
struct Xor {
    static unsigned of(unsigned a, unsigned b)
    {
        return a ^ b;
    }
};
template <class T> struct Min {
    static unsigned of(unsigned a, unsigned b)
    {
        return static_cast<T>(a) < static_cast<T>(b) ? a : b;
    }
};
template <class T> struct Max {
    static unsigned of(unsigned a, unsigned b)
    {
        return static_cast<T>(a) > static_cast<T>(b) ? a : b;
    }
};

} // namespace emu

inline void __syncwarp(unsigned mask = 0xffffffffu, emu::Site site = emu::Site::current())
{
    emu::meet(
        mask, nullptr, [](unsigned, void *const *) {}, site);
}

/* Shuffles within segments of `width` lanes, a power of two. */
template <class T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32,
                     emu::Site site = emu::Site::current())
{
    return emu::exchange(mask, v, (emu::lane_id & ~(width - 1)) | (source & (width - 1)), site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32,
                         emu::Site site = emu::Site::current())
{
    int from = emu::lane_id ^ bits;

    return emu::exchange(mask, v, from / width > emu::lane_id / width ? emu::lane_id : from, site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32,
                          emu::Site site = emu::Site::current())
{
    int from = emu::lane_id + static_cast<int>(delta);

    return emu::exchange(mask, v, from / width == emu::lane_id / width ? from : emu::lane_id, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32,
                        emu::Site site = emu::Site::current())
{
    int d = static_cast<int>(delta);
    bool inside = (emu::lane_id & (width - 1)) >= d;

    return emu::exchange(mask, v, inside ? emu::lane_id - d : emu::lane_id, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, predicate != 0, emu::Ballot(), site);
}
inline int __any_sync(unsigned mask, int predicate, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, predicate != 0, emu::Ballot(), site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, predicate == 0, emu::Ballot(), site) == 0;
}
inline unsigned __match_any_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Match(), site);
}
/* Fibers run one at a time: all that the hardware promises is the calling lane. */
inline unsigned __activemask()
{
    return 1u << emu::lane_id;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::Add>(), site);
}
inline int __reduce_add_sync(unsigned mask, int v, emu::Site site = emu::Site::current())
{
    return static_cast<int>(
        emu::vote(mask, static_cast<unsigned>(v), emu::Reduce<emu::Add>(), site));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::Min<unsigned>>(), site);
}
inline int __reduce_min_sync(unsigned mask, int v, emu::Site site = emu::Site::current())
{
    return static_cast<int>(
        emu::vote(mask, static_cast<unsigned>(v), emu::Reduce<emu::Min<int>>(), site));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::Max<unsigned>>(), site);
}
inline int __reduce_max_sync(unsigned mask, int v, emu::Site site = emu::Site::current())
{
    return static_cast<int>(
        emu::vote(mask, static_cast<unsigned>(v), emu::Reduce<emu::Max<int>>(), site));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::And>(), site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::Or>(), site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, emu::Site site = emu::Site::current())
{
    return emu::vote(mask, v, emu::Reduce<emu::Xor>(), site);
}

#endif
