// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/callback_slots.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {

void callback_slots::reset(std::size_t slots) noexcept
{
    slots_ = {};
    size_ = std::min(slots, max_slots);
}

nfsstat4 callback_slots::look(const CB_SEQUENCE4args& args, std::uint64_t digest,
                              bool& repeated) const noexcept
{
    repeated = false;
    if (args.slotid >= size_)
        return nfsstat4::badslot;
    if (args.highest_slotid >= size_)
        return nfsstat4::bad_high_slot;
    const slot& s = slots_[args.slotid];
    if (args.sequenceid == s.sequence + 1)
        return nfsstat4::ok;
    if (args.sequenceid != s.sequence || s.kept.empty())
        return nfsstat4::seq_misordered;
    if (s.digest != digest)
        return nfsstat4::seq_false_retry;
    repeated = true;
    return nfsstat4::ok;
}

void callback_slots::begin(const CB_SEQUENCE4args& args, std::uint64_t digest) noexcept
{
    slot& s = slots_[args.slotid];
    s.sequence = args.sequenceid;
    s.digest = digest;
    s.kept.clear();
}

} // namespace verbena::nfs::v4
