// SPDX-License-Identifier: Apache-2.0
// What a handle stands for.
#pragma once

#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/pseudo_tree.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <optional>

namespace verbena::nfs::v4 {

/// What a handle stands for, once it was found that the caller may use it.
struct object {
    const pseudo_node* node = nullptr; // of the pseudo file system, unless `exported`
    export_ref exported;
    storage::handle file;
    storage::request request;
    // Which a file keeps as long as its handle; nothing where nobody has looked.
    std::optional<storage::file_type> type;

    bool none() const noexcept { return node == nullptr && exported == nullptr; }
    bool is_pseudo() const noexcept { return exported == nullptr; }
    storage::file_backend& backend() const noexcept { return *exported->backend; }
    bool is_export_root() const noexcept { return exported != nullptr && file == backend().root(); }
    /// Another file of the same export, for the same caller. `attrs`: if somebody has looked.
    object other(const storage::handle& h, const std::optional<storage::attributes>& attrs) const
    {
        object o = *this;
        o.file = h;
        o.type = attrs ? std::optional(attrs->type) : std::nullopt;
        return o;
    }
    /// The state layer's name for the file.
    storage::handle key() const noexcept { return files::file_key(exported->space, file); }
    /// For what it asks of that file: by this export.
    files::exported_file state_file() const noexcept { return {key(), exported->id}; }
};

/// What an operation is about to do to an object.
enum class purpose : bool { reading, changing };

} // namespace verbena::nfs::v4
