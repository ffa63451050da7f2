// SPDX-License-Identifier: Apache-2.0
// What a file back end and its users say to each other. No NFS type stands here: a version of NFS
// adds procedures, not another interface.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/file_range.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/acl.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Errors are errno values (system category) wherever one says it; these are the rest.
enum class errc {
    bad_cookie = 1, ///< a directory cookie or verifier that is no longer good
    not_sync,       ///< a guarded setattr found another ctime
    bad_handle,     ///< a handle that this back end never made
    too_small,      ///< the caller's space can't hold even one entry
    crosses_mount,  ///< the name leads to another file system and crossmnt is off
    delayed,        ///< not now; the same call may succeed later
};
/// Category "storage": values of errc.
const std::error_category& storage_category() noexcept;
/// So an errc stands in an error.
std::error_code make_error_code(errc e) noexcept;

/// A name for a file that survives restart and rename. Opaque to all but its back end.
class handle {
public:
    static constexpr std::size_t max_size = 64; ///< bytes

    handle() = default;
    /// `bytes` longer than max_size give an empty handle.
    explicit handle(std::span<const std::byte> bytes) noexcept
    {
        if (bytes.size() <= max_size) {
            size_ = static_cast<std::uint8_t>(bytes.size());
            std::copy(bytes.begin(), bytes.end(), bytes_.begin());
        }
    }
    /// As the back end made it; valid as long as the handle.
    std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }
    bool empty() const noexcept { return size_ == 0; }
    friend bool operator==(const handle& a, const handle& b) noexcept
    {
        return a.size_ == b.size_ && std::memcmp(a.bytes_.data(), b.bytes_.data(), a.size_) == 0;
    }

private:
    std::array<std::byte, max_size> bytes_{};
    std::uint8_t size_ = 0;
};

/// Supplementary groups, sorted and without repeats, that many credentials share. Empty: none are known.
using shared_groups = std::shared_ptr<const std::vector<std::uint32_t>>;

/// Who asks. `groups` are supplementary; AUTH_SYS carries at most 16, the server may know of more.
class credential {
public:
    /// That a credential has room for itself. share_groups() takes longer lists.
    static constexpr std::size_t max_groups = 32;

    credential() = default;
    /// A user without supplementary groups.
    credential(std::uint32_t u, std::uint32_t g) noexcept : uid(u), gid(g) {}
    /// Sets the supplementary groups, sorted and without repeats; more than max_groups are cut off.
    void set_groups(std::span<const std::uint32_t> groups) noexcept
    {
        shared_.reset();
        std::size_t n = 0;
        for (std::uint32_t g : groups.first(std::min(groups.size(), max_groups)))
            groups_[n++] = g;
        std::sort(groups_.begin(), groups_.begin() + n);
        group_count_ =
            static_cast<std::uint8_t>(std::unique(groups_.begin(), groups_.begin() + n) - groups_.begin());
    }
    /// Sets them, however many there are. No copy is made.
    void share_groups(shared_groups groups) noexcept { shared_ = std::move(groups); }
    /// What share_groups() set, if it did; empty where the credential has its groups itself.
    const shared_groups& shared() const noexcept { return shared_; }
    /// Supplementary groups, sorted and without repeats. Valid until they are set anew.
    std::span<const std::uint32_t> groups() const noexcept
    {
        return shared_ ? std::span<const std::uint32_t>(*shared_)
                       : std::span<const std::uint32_t>(groups_.data(), group_count_);
    }
    friend bool operator==(const credential& a, const credential& b) noexcept
    {
        return a.uid == b.uid && a.gid == b.gid && has_same_groups(a, b);
    }
    /// Two credentials that share one list are not compared group by group.
    friend bool has_same_groups(const credential& a, const credential& b) noexcept
    {
        return (a.shared_ && a.shared_ == b.shared_) || std::ranges::equal(a.groups(), b.groups());
    }

    std::uint32_t uid = 65534; ///< nobody
    std::uint32_t gid = 65534; ///< nobody's

private:
    shared_groups shared_; // if it is set, in the place of groups_
    std::array<std::uint32_t, max_groups> groups_{};
    std::uint8_t group_count_ = 0;
};

class open_file;

/// Context of one request to a back end. Lives as long as the call.
struct request {
    /// Whether `who` may use the file that he names so (R_OK or W_OK) because he has it open; of copy() and clone() the one that
    /// changes.
    bool may_by_open(unsigned use) const noexcept;
    /// The same of the file that copy() and clone() read.
    bool may_read_source_by_open() const noexcept;

    credential who;
    std::string_view client;           ///< the peer's address, for logs
    const open_file* open = nullptr;   ///< of the file that the call names, if the caller has it open
    const open_file* source = nullptr; ///< likewise of the one that copy() and clone() read
    /// Of remove(), and of rename() for the new name: the only file whose name may go, none if the handle is empty. Where
    /// the name leads to another one, that is ESTALE and nothing is changed. Back ends that others make may not know of
    /// it. A filter that changes handles changes this one as well.
    const handle* victim = nullptr;
};

/// What kind of file it is, in the numbers of ftype3 (RFC 1813 2.5).
enum class file_type : std::uint8_t {
    regular = 1,
    directory,
    block_device,
    character_device,
    symlink,
    socket,
    fifo
};

/// Seconds and nanoseconds since the epoch.
struct file_time {
    std::int64_t seconds = 0;      ///< may be negative
    std::uint32_t nanoseconds = 0; ///< below 1,000,000,000
    friend bool operator==(const file_time&, const file_time&) = default;
};

/// What a file is like at one moment. Bytes, and times of the disk's file system.
struct attributes {
    file_type type = file_type::regular; ///< what kind of file it is
    std::uint32_t mode = 0;              ///< permission bits, 07777
    std::uint32_t links = 1;             ///< names of the inode
    std::uint32_t uid = 0;               ///< of the owner
    std::uint32_t gid = 0;
    std::uint32_t device_major = 0; ///< of a device file
    std::uint32_t device_minor = 0;
    std::uint64_t size = 0; ///< bytes
    std::uint64_t used = 0; ///< bytes on disk
    std::uint64_t fsid = 0; ///< stable over restarts
    /// the inode's number: a name of the file for people and clients, which a later file may have
    std::uint64_t fileid = 0;
    /// At the root of a mount: the number of the directory that the mount covers (RFC 8881 5.8.2.23). 0: it is `fileid`, or not known.
    std::uint64_t covered_fileid = 0;
    file_time atime;
    file_time mtime;
    file_time ctime;
    /// When the file was made, where info().birth_times says that the back end knows. Empty: not of this file.
    std::optional<file_time> birth;
    /// A number of this state of the file: later states have larger ones, as far as the back end can tell them apart. A new back end object on the
    /// same files goes on behind the numbers of the one before. Empty: the back end has none, and users take `ctime`.
    std::optional<std::uint64_t> change;
};

/// How a time is set: left alone, to the server's now, or to a value.
struct set_time {
    /// Whether it changes.
    enum class kind : std::uint8_t { keep, server_time, value } how = kind::keep;
    file_time value; ///< of `value`
};

/// What setattr() changes, and what a new file begins with. What has no value stays as it is.
struct set_attributes {
    std::optional<std::uint32_t> mode; ///< permission bits, 07777
    /// Of what is made: bits that `mode` loses, unless the directory has a default ACL, which decides instead (RFC 8275 4). What is there
    /// knows nothing of it.
    std::optional<std::uint32_t> umask;
    std::optional<std::uint32_t> uid;
    std::optional<std::uint32_t> gid;
    std::optional<std::uint64_t> size; ///< bytes
    set_time atime;
    set_time mtime;
    /// The access control list, where info().acls says that there is one. Set behind the mode, whose nine low bits it decides (RFC 8881 6.4.1); of what is made, in
    /// the place of all that would be inherited. EOPNOTSUPP where the file can't have it. The entries outlive the call.
    std::optional<std::span<const ace>> acl;
};

/// Attributes before and after a change. `before` is given only when operations on that inode are
/// serialised, so that it is truly the state just before; both may be missing. Users tell clients that two which are given are atomic.
struct change {
    std::optional<attributes> before; ///< where it is known from the same moment
    std::optional<attributes> after;
};

/// A file that was found or made.
struct entry {
    storage::handle handle;          ///< by which it is found again
    std::optional<attributes> attrs; ///< where they were at hand
};
/// What lookup() found.
struct lookup_result {
    entry found;                         ///< its handle
    std::optional<attributes> directory; ///< of the directory that was searched
};
/// What create(), mkdir(), symlink() and mknod() made.
struct create_result {
    entry made;           ///< handle and attributes
    change directory;     ///< that it was made in
    bool existed = false; ///< it was there: an exclusive creation that is repeated, or an unchecked one
};
/// What rename() changed.
struct rename_result {
    change from; ///< the directory of the old name
    change to;   ///< the directory of the new name; of the same directory, the same
};
/// What link() changed.
struct link_result {
    std::optional<attributes> file; ///< the file, with one name more
    change directory;               ///< that has the new name
};

/// What survives a power failure once the reply is sent.
enum class stability : std::uint8_t { unstable = 0, data_sync = 1, file_sync = 2 };

/// What read() brought.
struct read_result {
    std::uint32_t count = 0;         ///< bytes
    bool end_of_file = false;        ///< nothing is behind them
    std::optional<attributes> attrs; ///< after the read, where they were asked for or cheap
};
/// Memory of a back end that a reader has on loan: pieces in order, and what keeps them there with the bytes that they have now.
/// The back end changes none of them until the keeper goes, on whichever thread that is; it may go after the back end.
struct lent_memory {
    static constexpr std::size_t max_pieces = 4; ///< as a reply takes them without a list
    bool empty() const noexcept { return count == 0; }

    std::array<std::span<const std::byte>, max_pieces> pieces{};
    std::size_t count = 0; ///< of the pieces
    std::shared_ptr<const void> keeper;
};
/// What locate() may answer with.
enum class locatable : std::uint8_t {
    memory,        ///< bytes that nobody changes any more
    memory_or_file ///< or a range of a file, which may change until it is sent
};
/// Where the bytes of a read lie (file_backend::locate()): in a file or in memory.
struct located_read {
    bool here = false;  ///< false: ask read()
    read_result read;   ///< as read() would have answered
    file_range bytes;   ///< where they are, to be sent from there; empty where they are in memory
    lent_memory memory; ///< where they are else
};
/// What write() did.
struct write_result {
    std::uint32_t count = 0;                   ///< bytes written; fewer than given is no error
    stability committed = stability::unstable; ///< at least as good as was asked for
    change file;                               ///< before and after; `after` is what getattr() would tell now
};

/// What a file has at a place: bytes that somebody wrote, or none, which read as zeros.
enum class extent : std::uint8_t { data, hole };
/// What seek() found.
struct seek_result {
    std::uint64_t offset = 0; ///< where it begins, or the file's size where there is none
    bool end_of_file = false; ///< that is the file's end
};
/// What copy() did.
struct copy_result {
    std::uint64_t count = 0;                   ///< bytes copied
    stability committed = stability::unstable; ///< of those bytes
    change file;                               ///< what was copied to
};

/// How an extended attribute is set: whatever was there; EEXIST if there is one; ENODATA if there is none.
enum class xattr_mode : std::uint8_t { either, create, replace };

/// What create() does where the name is there (RFC 1813 3.3.8): opens it as it is, fails with EEXIST, or goes
/// by the verifier.
enum class create_mode : std::uint8_t { unchecked, guarded, exclusive };

/// One entry of a directory, valid while the sink is called.
struct directory_entry {
    std::uint64_t fileid = 0;              ///< attributes::fileid of what it names
    std::uint64_t cookie = 0;              ///< where the entry after this one starts
    std::string_view name;                 ///< as the directory has it: any bytes but '/' and NUL
    std::optional<attributes> attrs;       ///< when asked for
    std::optional<storage::handle> handle; ///< when asked for
};

/// Takes the entries of one readdir; false ends it (this entry was not taken).
class directory_sink {
public:
    /// Called for one entry after the other, on the shard and in the middle of the readdir: it neither waits
    /// nor calls the back end.
    virtual bool take(const directory_entry& e) = 0;

protected:
    ~directory_sink() = default;
};

/// How a readdir ended.
struct readdir_result {
    std::uint64_t verifier = 0;          ///< to be given again with the cookies of these entries
    bool end = false;                    ///< the last entry taken was the directory's last
    std::optional<attributes> directory; ///< that was read
};

/// How much room a file system has. Bytes and inodes; `available` is what this caller may still use.
struct filesystem_stat {
    std::uint64_t total_bytes = 0, free_bytes = 0, available_bytes = 0;
    std::uint64_t total_files = 0, free_files = 0, available_files = 0;
};

/// Fixed properties of a back end.
struct filesystem_info {
    std::uint32_t max_name = 255;                         ///< bytes of a name
    std::uint32_t max_links = 32000;                      ///< names of one file
    std::uint64_t max_file_size = ~std::uint64_t(0) >> 1; ///< bytes
    std::uint32_t time_granularity_ns = 1; ///< nanoseconds between two times that it tells apart
    std::uint32_t clone_block = 0;         ///< bytes; what offsets of a clone are multiples of
    std::uint32_t map_block =
        0;                    ///< bytes; what the parts of a mapping begin and end at. 0: map() is not there
    bool maps_stores = false; ///< map() yields stores, and no memory
    /// Bytes; for fewer locate() is not asked, and by default never. Who overrides locate() sets it.
    std::uint32_t least_located = ~std::uint32_t(0);
    bool xattrs = false;         ///< extended attributes of the name space "user"
    bool leases = false;         ///< file_backend::lease() may be asked for
    bool acls = false;           ///< access control lists: file_backend::getacl() and set_attributes::acl
    bool birth_times = false;    ///< attributes::birth
    bool lasting_handles = true; ///< a handle is good as long as its file is there, also after a restart
    bool links = true, symlinks = true, case_insensitive = false, chown_restricted = true;
    /// Which files these are: two back ends of one kind with one number reach the same files by the same handles, and a
    /// handle of one never names another file of the other one. Then exports by them share what is open, locked and
    /// delegated. 0: not known. A filter that changes handles says 0, or a number of its own.
    std::uint64_t file_space = 0;
};

} // namespace verbena::storage

template<>
struct std::is_error_code_enum<verbena::storage::errc> : std::true_type {};

#pragma GCC visibility pop
