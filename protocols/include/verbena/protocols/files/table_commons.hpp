// SPDX-License-Identifier: Apache-2.0
// What the state tables of all homes share. docs/internals/files.md, "Homes".
#pragma once

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/files/presence.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <memory>

namespace verbena::files::detail {
class client_cards;
}

#pragma GCC visibility push(default)

namespace verbena::files {

/// Which table is home of which file, whether anybody has state of a file, and what is under way. Made before the
/// tables, and outlives them. Any thread.
class table_commons {
public:
    static constexpr unsigned most_homes = 1024;

    /// `key` is another one at each start, and known to nobody: with it a client could choose homes, and guess
    /// stateids. `homes` tables will share this, 1 to most_homes.
    explicit table_commons(const siphash_key& key, unsigned homes = 1);
    ~table_commons();
    table_commons(const table_commons&) = delete;

    const siphash_key& key() const noexcept { return key_; }
    unsigned homes() const noexcept { return homes_; }
    /// The home of a file, by its file_key(): one of homes(), and the same for all exports that have the file.
    unsigned home_of(const storage::handle& key) const noexcept
    {
        // The bucket of presence is made of the low bits.
        return homes_ == 1 ? 0 : unsigned((presence_.hash(key) >> 32) * homes_ >> 32);
    }
    /// The home whose table gave out `id`: one of homes(), also for a stateid that nobody gave out. That table then
    /// says whether it is one of its own.
    unsigned home_of(const stateid& id) const noexcept { return files::home_of(id, homes_); }

    /// Asked without a way to any table: whether somebody has state of the file, or of any file.
    bool has_state(const storage::handle& key) const noexcept { return presence_.has_state(key); }
    /// Likewise, of any file. Any thread.
    bool has_any_state() const noexcept { return presence_.has_any(); }
    /// What is known of that, to tables.
    files::presence& presence() noexcept { return presence_; }
    /// The reads and writes that run now, which a grant has to wait for.
    operations_under_way& operations() noexcept { return operations_; }
    /// Nobody else's.
    detail::client_cards& clients() const noexcept { return *clients_; }

private:
    const siphash_key key_;
    const unsigned homes_;
    files::presence presence_;
    operations_under_way operations_;
    std::unique_ptr<detail::client_cards> clients_;
};

} // namespace verbena::files

#pragma GCC visibility pop
