// SPDX-License-Identifier: Apache-2.0
// What several operations have in common: what must be asked first, and what their failure is.
#pragma once

#include "../compound.hpp"

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <functional>
#include <optional>
#include <string_view>

namespace verbena::nfs::v4::operations {

/// The status itself, for functions that sometimes have nothing to wait for.
task<nfsstat4> answer_with(nfsstat4 status);

/// Whether the stateid lets the client do that to the current file. From here on until the operation ends it is under
/// way.
task<nfsstat4> check_io(compound& k, stateid4 id, files::operation op);
/// The same of `of`, which is k.current or k.saved. Nothing stands for the stateid any more.
task<nfsstat4> check_io_of(compound& k, object& of, stateid4 id, files::operation op);

/// Has others' delegations returned that are in the way.
task<nfsstat4> make_way(compound& k, const object& of, files::operation op);
/// The same for what has a name, if something has: whoever changes the directory finds out by himself. Another file
/// may get the name between this and that; it is not asked about then. From here on until the operation ends `op` is
/// under way. Before anybody has to give up what he has of the file, `may` asks the back end whether it would refuse the
/// operation: that error is the answer then. `asked` gets the handle of the file that was asked
/// about, an empty one where nothing has the name, and none where nobody looked.
using may_change_name = std::function<task<result<void>>()>;
task<result<nfsstat4>> make_way_to(compound& k, const object& directory, std::string_view name,
                                   files::operation op, may_change_name may,
                                   std::optional<storage::handle>* asked = nullptr);
/// The request for the change itself: another file that has the name by now may have layouts, which nobody has recalled.
/// `asked` outlives it.
inline storage::request request_of(const object& of, const std::optional<storage::handle>& asked)
{
    storage::request request = of.request;
    request.victim = asked ? &*asked : nullptr;
    return request;
}

/// Whether it is a file that has bytes.
task<nfsstat4> need_regular(const object& file);
/// What a back end's `status` is to who reads or writes: of what is no regular file back ends say EISDIR or EINVAL.
task<nfsstat4> refuse_data(const object& of, nfsstat4 status);

} // namespace verbena::nfs::v4::operations
