// SPDX-License-Identifier: Apache-2.0
// As whom callers act in an export where the server looks up their groups (manage_gids).
#pragma once

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/user_groups.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/rpc/principal.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What one program of a shard knows of the groups of users. It gives calls the credentials that they act by.
class caller_groups {
public:
    /// Sets `as` to whom the caller of `c` acts as in `exported`: with the groups that `of` finds, where they matter,
    /// else with those that it claims. `of`: nullptr where groups are not looked up. Does not wait, and copies no list
    /// but the first time that one has to be another in an export. Where the groups are not known `as` stays.
    groups_standing act(const export_options& exported, const rpc::call& c, const user_groups* of,
                        storage::credential& as) noexcept;
    /// Whether the caller is a user whose groups would have to be looked up before it could act. Who is squashed has
    /// none, rights of root and of nobody in particular do not come from groups.
    bool lacks(const rpc::principal& who, const user_groups& of) noexcept;
    /// Whether the groups of `who` count in `exported`.
    static bool matter(const export_options& exported, const rpc::principal& who) noexcept;
    /// Has act() know the groups of c's caller, if `of` can find them. For who knows that the peer may use an export
    /// where they matter: others must not have anything looked up.
    /// Completes when: they are known, or can't be found out now. On cancel: at once, if it waits. Errors: none.
    /// Lifetime: this, `c` and `of` outlive it. Shard: that of the call.
    task<void> learn(const rpc::call& c, user_groups& of);

private:
    struct lists {
        storage::shared_groups all;
        /// Of who is in root's group: those that count in exports with root_squash, by what that group becomes there.
        std::vector<std::pair<std::uint32_t, storage::shared_groups>> squashed;
        const storage::shared_groups& in(const export_options& exported);
    };
    static constexpr std::size_t most_users = 8192;
    static constexpr std::size_t most_squashed = 8; // lists of a user
    cache_of_users<std::shared_ptr<lists>> known_{most_users, most_users};
};

} // namespace verbena::nfs

#pragma GCC visibility pop
