// SPDX-License-Identifier: Apache-2.0
// snapshot_keeper: what a file system that takes snapshots tells who serves it.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <memory>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// A back end that takes snapshots: file_backend::snapshots(). A snapshot is a directory in a directory of its own, where mkdir() takes it and
/// rmdir() ends it. It has the whole file system as it was when mkdir() had its turn, in files of their own that nobody
/// changes (EROFS). mkdir() answers EAGAIN while somebody has the memory of a file that is in no snapshot (file_backend::map()): who serves
/// the file system has that given back before. rmdir() needs nothing back: files that are mapped, or open, stay until they are let go.
///
/// All of it from any thread, and as long as the back end lives.
class snapshot_keeper {
public:
    /// Whether mkdir() in the directory takes a snapshot.
    virtual bool takes_in(const handle& directory) const noexcept = 0;
    /// Whether the file is in the snapshot that rmdir() of this name would end.
    virtual bool has(std::string_view name, const handle& file) const noexcept = 0;
    /// Until what it yields goes, nobody gets a mapping of a file that is in no snapshot (EAGAIN): so those that are out come to
    /// an end. It goes before the back end. Throws std::bad_alloc.
    virtual std::shared_ptr<const void> hold_back_mappings() = 0;
    /// The same of the files of the snapshot that rmdir() of this name would end. nullptr: there is none.
    virtual std::shared_ptr<const void> hold_back_mappings_of(std::string_view name) = 0;

protected:
    ~snapshot_keeper() = default;
};

} // namespace verbena::storage

#pragma GCC visibility pop
