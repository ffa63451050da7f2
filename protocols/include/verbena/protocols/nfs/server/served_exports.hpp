// SPDX-License-Identifier: Apache-2.0
// What the module that serves NFS shows to those beside it: MOUNT, and other programs about the same files.
#pragma once

#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Another module finds it by module_table::find<served_exports>("nfs"). Complete from start() to stop(); any thread.
class served_exports {
public:
    /// The exports that are served; each shard asks for the list that it has.
    virtual const export_table& exports() const noexcept = 0;
    /// Signs file handles.
    virtual const handle_key& key() const noexcept = 0;

protected:
    ~served_exports() = default;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
