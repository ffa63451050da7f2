// SPDX-License-Identifier: Apache-2.0
// The memory of files' data: blocks that lie side by side where that is possible, and are pinned for those that reach
// them without asking.
#pragma once

#include <verbena/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace verbena::memfs {

/// Blocks of 64 KiB in slabs of 2 MiB, in one range of addresses that is reserved at once: so neighbours in a file are
/// neighbours in memory, also across slabs. Memory is taken from the system as slabs are needed, and goes back to it
/// when a slab is free. Used with the back end's mutex held.
class arena {
public:
    static constexpr std::size_t block_size = std::size_t(64) << 10;
    static constexpr std::size_t slab_size = std::size_t(2) << 20;
    /// Of a block. `none`: no block.
    using number = std::uint32_t;
    static constexpr number none = std::numeric_limits<number>::max();

    /// Reserves addresses for `blocks`, for some copies of what is freed behind them, and for most_lent(). Throws std::bad_alloc where there are
    /// none.
    explicit arena(std::uint64_t blocks);
    arena(const arena&) = delete;
    ~arena();

    /// A block that holds zeros and has one owner: the one behind `before`, if that is free. Else where `run` blocks
    /// are to follow it, as far as there is such a place. Throws std::bad_alloc where the system has no memory; who
    /// asks has counted that there is a block.
    number take(number before, std::uint64_t run = 1);
    std::span<std::byte, block_size> at(number b) const noexcept
    {
        return std::span<std::byte, block_size>(memory_ + b * block_size, block_size);
    }

    // Owners: files that share it. The last one that goes frees it.
    void share(number b) noexcept
    {
        held_ -= is_held(states_[b]);
        ++states_[b].owners;
    }
    void let_go(number b) noexcept
    {
        --states_[b].owners;
        held_ += is_held(states_[b]);
        free_unless_owned(b);
    }
    /// Whether somebody else sees its bytes, so that a file makes a copy before it changes them.
    bool is_shared(number b) const noexcept { return states_[b].owners > 1 || states_[b].loans != 0; }
    // Owners that are files of snapshots are counted besides. A file owns it when it is kept.
    void keep(number b) noexcept
    {
        ++states_[b].owners;
        ++states_[b].keepers;
        ++keepers_;
    }
    void keep_no_more(number b) noexcept
    {
        held_ -= is_held(states_[b]);
        --states_[b].owners;
        --states_[b].keepers;
        --keepers_;
        held_ += is_held(states_[b]);
        free_unless_owned(b);
    }
    /// Snapshots alone would have it if the only file that owns it besides lets it go.
    bool is_last_of_kept(number b) const noexcept
    {
        return states_[b].keepers != 0 && states_[b].owners - states_[b].keepers == 1;
    }
    /// The same if the file lets it go as often as it was asked since forget_let_go(): it may have the block at several places.
    bool is_last_of_kept_let_go(number b) noexcept
    {
        block_state& s = states_[b];
        ++s.let_go;
        return s.keepers != 0 && s.owners - s.keepers == s.let_go;
    }
    void forget_let_go(number b) noexcept { states_[b].let_go = 0; }
    bool is_kept(number b) const noexcept { return states_[b].keepers != 0; }
    bool keeps_none() const noexcept { return keepers_ == 0; }
    /// Blocks that snapshots alone have.
    std::uint64_t held() const noexcept { return held_; }

    // Loans: to readers, who see the bytes that the block has now. Its owner may let go of a block on loan, for a copy that is written to. Then
    // only its readers have it, and no file counts it: such blocks come on top of what files count, most_lent() at most.
    /// False: as many blocks are on loan as may be.
    bool lend(number b) noexcept
    {
        if (states_[b].loans == 0 && lent_ == most_lent_)
            return false;
        lent_ += states_[b].loans++ == 0;
        return true;
    }
    void end_loan(number b) noexcept
    {
        lent_ -= --states_[b].loans == 0;
        free_unless_owned(b);
    }
    std::uint64_t lent() const noexcept { return lent_; }
    /// An eighth of the blocks, 64 at least and 4,096 (256 MiB) at most.
    std::uint64_t most_lent() const noexcept { return most_lent_; }

    // Pins: of those that reach the block by its address. It has one owner then, who keeps it as long as they are there.
    // Those who may write are counted besides: what they have written behind a file's end goes with the last of them.
    void pin(number b, bool writes) noexcept
    {
        ++states_[b].pins;
        states_[b].writers += writes;
    }
    void unpin(number b, bool writes) noexcept
    {
        --states_[b].pins;
        states_[b].writers -= writes;
    }
    bool is_pinned(number b) const noexcept { return states_[b].pins != 0; }
    bool has_writers(number b) const noexcept { return states_[b].writers != 0; }

    // What files count as theirs: a place for each block that they have or have taken room for, shared or not. So there is a
    // block for who makes a shared one his own.
    void count_places(std::uint64_t more) noexcept { places_ += more; }
    void uncount_place() noexcept { --places_; }
    std::uint64_t places() const noexcept { return places_; }

private:
    static constexpr unsigned per_slab = slab_size / block_size;
    static_assert(per_slab == 32, "a slab has a word of bits");
    struct block_state {
        std::uint32_t owners = 0;
        std::uint32_t loans = 0;
        std::uint32_t pins = 0;
        std::uint32_t writers = 0; ///< of these
        std::uint32_t keepers = 0; ///< of the owners
        std::uint32_t let_go = 0;  ///< is_last_of_kept_let_go()
    };
    static bool is_held(const block_state& s) noexcept { return s.keepers != 0 && s.keepers == s.owners; }
    void free_unless_owned(number b) noexcept;
    struct slab {
        std::uint32_t free = ~std::uint32_t(0);
        std::uint32_t clean = ~std::uint32_t(0); ///< of those that are free: hold zeros
    };
    bool is_free(std::uint64_t b) const noexcept
    {
        return (slabs_[b / per_slab].free >> (b % per_slab) & 1) != 0;
    }
    bool add_slab();
    std::size_t slab_for(std::uint64_t run);
    number occupy(std::size_t s, unsigned bit) noexcept;
    void give_back(std::size_t s) noexcept;

    const std::uint64_t most_lent_;
    const std::uint64_t capacity_;
    std::byte* reserved_ = nullptr;
    std::size_t reserved_size_ = 0;
    std::byte* memory_ = nullptr; // aligned to slabs
    std::vector<slab> slabs_;     // those that memory was taken for
    std::vector<block_state> states_;
    std::uint64_t places_ = 0;
    std::uint64_t held_ = 0, keepers_ = 0;
    std::uint64_t lent_ = 0;
    std::size_t dirty_slabs_ = 0; // free, and not given back
    // No slab before it has a free block; no slab before it is wholly free.
    std::size_t first_with_room_ = 0;
    std::size_t first_empty_ = 0;
};

} // namespace verbena::memfs
