// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/status_counts.hpp>

namespace verbena::nfs {

void status_counts::note(std::uint32_t operation, std::uint32_t status) noexcept
{
    const std::uint32_t pair = operation << 16 | (status & 0xffff);
    // Multiplied by the golden ratio, pairs that are near each other lie apart.
    std::uint32_t at = pair * 0x9e3779b1U >> (32 - slot_bits);
    for (;; at = (at + 1) % slots_.size()) {
        slot& s = slots_[at];
        const std::uint32_t known = s.pair.load(std::memory_order_relaxed);
        if (known == pair)
            return s.count.add();
        if (known != 0)
            continue;
        if (used_ == most)
            return others_.add();
        ++used_;
        s.count.add();
        s.pair.store(pair, std::memory_order_release); // who reads it sees its count, too
        return;
    }
}

} // namespace verbena::nfs
