// SPDX-License-Identifier: Apache-2.0
// What one owner has locked of one file.
#pragma once

#include <verbena/protocols/files/types.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Bytes of a file that somebody has locked.
struct locked_range {
    byte_range bytes;                 ///< both ends included
    lock_type type = lock_type::read; ///< how they are locked
    friend bool operator==(const locked_range&, const locked_range&) = default;
};

/// Ranges in order that don't overlap; neighbours of one type are one range.
class byte_ranges {
public:
    /// How many ranges more there are after set(): negative where some were merged. `type` nothing: of clear().
    std::ptrdiff_t growth(const byte_range& r, std::optional<lock_type> type) const noexcept;
    /// Takes the memory that set() of that needs, or clear() where `type` is nothing: then that can't fail.
    void reserve(const byte_range& r, std::optional<lock_type> type);
    /// Locks `r` so, whatever was locked of it. Bytes beside it stay as they are.
    void set(const byte_range& r, lock_type type) { replace(r, type); }
    /// Unlocks `r`, of which nothing needs to be locked.
    void clear(const byte_range& r) { replace(r, std::nullopt); }
    /// The first range that stands against a lock of this type.
    const locked_range* find_conflict(const byte_range& r, lock_type type) const noexcept;

    /// Those that have bytes of `r`.
    std::span<const locked_range> overlapping(const byte_range& r) const noexcept;
    /// All of them, in order. Valid until the next change.
    std::span<const locked_range> all() const noexcept { return ranges_; }
    bool empty() const noexcept { return ranges_.empty(); }
    std::size_t size() const noexcept { return ranges_.size(); }

private:
    struct change {
        std::size_t first = 0, count = 0; // what goes
        locked_range pieces[3];           // what comes
        std::size_t made = 0;
    };
    change plan(const byte_range& r, std::optional<lock_type> type) const noexcept;
    void reserve(const change& c);
    void replace(const byte_range& r, std::optional<lock_type> type);

    std::vector<locked_range> ranges_;
};

} // namespace verbena::files

#pragma GCC visibility pop
