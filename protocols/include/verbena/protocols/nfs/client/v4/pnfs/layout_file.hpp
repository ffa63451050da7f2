// SPDX-License-Identifier: Apache-2.0
// An open file whose bytes go by RDMA where the server gives layouts of it, and by NFS elsewhere:
// docs/internals/pnfs.md, "The client".
#pragma once

#include <verbena/protocols/nfs/client/v4/file.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

class layout_user;
struct file_layout;
struct layout_sharer;

/// Why bytes went by NFS.
enum class by_nfs : std::uint8_t {
    none,          ///< they did not
    no_server,     ///< the server gives no layouts (EXCHANGE_ID)
    no_type,       ///< none of this type in the file's file system (fs_layout_types)
    no_way_back,   ///< the server can't call the client, so it could recall none
    small,         ///< the file is shorter than layout_options::least
    unavailable,   ///< LAYOUTUNAVAILABLE, or what else says that there is never one
    later,         ///< LAYOUTTRYLATER or RECALLCONFLICT, in vain
    refused,       ///< LAYOUTGET failed otherwise
    broken_rule,   ///< a layout broke a rule of the draft
    no_connection, ///< none to the data server
    lost,          ///< the layout, or the connection with I/O under way on it, is gone
    no_lease,      ///< the lease may be over
    memory,        ///< memory that the device can't send from, or no memory
    behind_end,    ///< where the file ended when it was looked at last
    connecting,    ///< the connection to the data server is being made
};
/// How many values by_nfs has.
inline constexpr std::size_t reasons_by_nfs = static_cast<std::size_t>(by_nfs::connecting) + 1;
/// "the server gives no layouts" and so on.
const char* to_string(by_nfs why) noexcept;
/// The enumerator's own name, for programs.
const char* name_of(by_nfs why) noexcept;

/// Made by layout_user::use(). close() before it goes, as v4::file. Several of one file share what the client has of its layouts; the last one that
/// closes gives it back.
///
/// This holds for all its tasks. Completes when: the bytes are where they are to be, or the server has answered. On cancel: the wait ends,
/// ECANCELED or as v4::file says; what was sent stands, and what was written by then is kept for commit(). Errors: those of v4::file. Where
/// layout_options::requires_layouts is set: not_supported, with the reason, in place of I/O by NFS. Lifetime: the file outlives
/// them, and the layout_user the file. Shard: the client's.
///
/// Order is as written_file has it: of writes that overlap, one that began when another had ended stays on top.
class layout_file final {
public:
    /// Bytes written by RDMA that no LAYOUTCOMMIT has told of; a write beyond makes one first.
    static constexpr std::size_t max_uncommitted = written_file::max_uncommitted;

    ~layout_file();
    layout_file(const layout_file&) = delete;

    /// The file as its open found it.
    const v4::node& node() const noexcept;
    /// Of the file, as far as this client has made it or knows it: node() has that of its open.
    std::uint64_t size() const noexcept;
    /// The open file below, for what the server does with the file by itself. It goes with this one.
    v4::file& plain() noexcept;
    /// The size that a file which is written is to have, as far as it is known.
    void expect(std::uint64_t size) noexcept;
    /// At most `count` bytes; fewer where a layout ends. None are the end, which the server has told then; `eof` may be false where the end is near.
    task<result<file::read_result>> read(std::uint64_t offset, std::uint32_t count);
    /// Writes all of `data`. Its memory must not change before commit() ends.
    task<result<void>> write(std::uint64_t offset, rpc::payload data);
    /// Sets the size. What the client has of the file's layouts goes back before, as the server would recall it.
    task<result<void>> truncate(std::uint64_t size);
    /// Brings what was written to stable storage: LAYOUTCOMMIT, or COMMIT. What a lost layout leaves in doubt is written again by NFS.
    task<result<void>> commit();
    /// Commits, gives layouts back and closes. Where committing fails, the file is closed and that error told.
    task<result<void>> close();

    /// The file's extents, of layouts with that mode, as far as the server gives some. What is had of layouts stays. Errors: not_supported with the
    /// reason where there is none.
    task<result<std::vector<pnfs_rdma_extent4>>> extents(layoutiomode4 mode);
    /// Bytes written by RDMA, or that a lost layout leaves to be written by NFS, and not committed.
    std::size_t uncommitted() const noexcept;
    /// Whether any layout of the file is there now.
    bool has_layout() const noexcept;
    /// Why I/O went by NFS last.
    by_nfs last_reason() const noexcept;

private:
    friend class layout_user;
    layout_file(std::shared_ptr<file_layout> of, std::shared_ptr<layout_sharer> mine) noexcept;
    const std::shared_ptr<file_layout> of_; // a recall that is under way has them too
    const std::shared_ptr<layout_sharer> mine_;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
