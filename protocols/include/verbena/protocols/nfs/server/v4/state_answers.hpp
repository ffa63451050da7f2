// SPDX-License-Identifier: Apache-2.0
// What the state layer takes and answers, in version 4's types.
#pragma once

#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The status that answers what the state layer says.
nfsstat4 status_of(files::errc why) noexcept;
/// Of an error of the state layer; else, of its recovery store's, delay: what can't be written isn't promised, and
/// may be as soon as the disk has room.
nfsstat4 status_of_state(const error& failure) noexcept;
template<class T>
nfsstat4 status_of_state(const result<T>& answer) noexcept
{
    return answer ? nfsstat4::ok : status_of_state(answer.error());
}

/// The state layer's form of a stateid.
inline files::stateid to_state(const stateid4& id) noexcept { return {id.seqid, id.other}; }
/// The protocol's form.
inline stateid4 to_wire(const files::stateid& id) noexcept { return {id.seqid, id.other}; }

/// The state layer's form of a type of lock; READW and WRITEW wait, which it is told apart.
inline files::lock_type type_of(nfs_lock_type4 type) noexcept
{
    return type == nfs_lock_type4::read || type == nfs_lock_type4::readw ? files::lock_type::read
                                                                         : files::lock_type::write;
}

/// When a client gives its name up to one that is answered `refused` as long as it does not.
inline name_rule name_rule_of(nfsstat4 refused) noexcept
{
    if (refused == nfsstat4::ok)
        return name_rule::at_once;
    return refused == nfsstat4::clid_inuse ? name_rule::unused : name_rule::lapsed;
}

/// state_home::check_io(), where `id` may be a special one. Others of those that are reserved are bad_stateid. All as
/// of that.
/// Completes when: the table has answered. On cancel: as shard::run(). Errors: as there. Lifetime: all is borrowed.
/// Shard: any.
task<result<void>> check_io(state_home& state, files::client_id client, const stateid4& id,
                            const files::exported_file& file, files::operation op,
                            state_home::io_terms& terms);

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
