// SPDX-License-Identifier: Apache-2.0
// Owners by their names: what clients call them, and what they are called to clients.
#pragma once

#include "call_context.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::nfs::v4 {

/// One shard's. It keeps the names that the shard has told at hand; the others, and all numbers, are asked for where
/// `user_names` lives.
class owner_names {
public:
    /// Names that are kept, and as many numbers that have none: more than a listing has.
    static constexpr std::size_t most_at_hand = 8192;

    /// All is borrowed for as long as this lives. `users`, which is set before the first call, may be nullptr:
    /// clients say numbers alone. It lives on `home`. `known` counts owners whose names were at hand.
    owner_names(user_names* const& users, shard& home, const shard& here, counter& known)
        : users_(users), home_(home), here_(here), known_(known)
    {
    }

    // --- What they are called to clients

    bool says(const bitmap4& wanted) const noexcept;
    /// Says those that this shard knows; others are added to `unknown`. It is nullptr where they have just been asked
    /// for.
    void say_known(const bitmap4& wanted, object_values& out, std::vector<account>* unknown);
    /// Has this shard know the names of `those`, as far as they can be found out in time.
    task<void> learn(name_waits& waits, std::vector<account>& those);
    task<void> say(name_waits& waits, bitmap4 wanted, object_values& out);

    // --- What clients call them

    bool may_be_said() const noexcept { return users_ != nullptr; }
    task<nfsstat4> id_of(name_waits& waits, account_kind kind, std::string_view text, std::uint32_t& id);
    /// from_settable(), which answers badowner for names, for who may name owners, and whoever has an entry in an ACL.
    task<nfsstat4> to_settable(name_waits& waits, const attributes& from, storage::set_attributes& to,
                               storage::access_list& acl);
    /// from_attributes(), likewise.
    task<nfsstat4> to_attributes(name_waits& waits, const attributes& from, storage::set_attributes& to);

private:
    using name_text = std::shared_ptr<const std::string>;
    /// When a call that begins to wait for a name now waits no longer: all its names have one patience.
    time_point until(const name_waits& waits) const noexcept;

    user_names* const& users_;
    shard& home_;
    const shard& here_;
    counter& known_;
    detail::expiring_cache<account, name_text> at_hand_{most_at_hand, most_at_hand};
};

} // namespace verbena::nfs::v4
