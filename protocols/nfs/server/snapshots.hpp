// SPDX-License-Identifier: Apache-2.0
// Directories that are snapshots, as programs of all versions make and remove them: what clients have of the memory of files that is in the
// way is given back before.
#pragma once

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <cstdint>
#include <string_view>

namespace verbena::nfs {

/// A directory of a file system, and whose state there may be of its files.
struct directory_to_change {
    state_home* state = nullptr; ///< or nullptr, where nobody has any
    std::uint32_t space = 0;     ///< of the export
    storage::file_backend& files;
    const storage::request& request;
    const storage::handle& directory;
};

/// file_backend::mkdir(), with all layouts of the file system recalled before where it takes a snapshot.
///
/// Completes when: it is done, or the layouts are not back after a second. On cancel: as the back end's. Errors: EAGAIN then, to be asked again;
/// the back end's. Lifetime: what `in` refers to, and `name`, outlive the task. Shard: any.
task<result<storage::create_result>> make_directory(directory_to_change in, std::string_view name,
                                                    const storage::set_attributes& set);
/// file_backend::rmdir(), with the layouts of the snapshot's files recalled before, where it ends one. As make_directory().
task<result<storage::change>> remove_directory(directory_to_change in, std::string_view name);

} // namespace verbena::nfs
